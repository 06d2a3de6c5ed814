"""What a ledger does."""

from __future__ import annotations

from typing import Protocol

from localqueue.idempotency.record import IdempotencyRecord


class IdempotencyStore(Protocol):
    """Keeps what became of each key. Any object with these methods can be a ledger.

    Times are seconds of ``time.time()``. What is saved is durable when ``save`` returns, as far as
    the store is durable at all.
    """

    def load(self, key: str) -> IdempotencyRecord | None: ...

    def save(self, key: str, record: IdempotencyRecord) -> None:
        """Keep this record under the key, instead of what was there."""

    def delete(self, key: str) -> None:
        """Forget the key: its work may be done again."""

    def prune_completed(self, *, older_than: float, now: float) -> int:
        """Forget keys that succeeded at least ``older_than`` seconds before ``now``; how many."""

    def count_completed_older_than(self, *, older_than: float, now: float) -> int:
        """How many ``prune_completed`` would forget."""
