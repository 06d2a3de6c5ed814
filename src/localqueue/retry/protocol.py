"""What a place for attempt records has to offer."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from localqueue.retry.record import RetryRecord


class AttemptStore(Protocol):
    """Keeps one record per key. These four methods are enough; several threads may call them.

    A store with an attribute ``reads_instantly`` that is true says that its ``load`` and ``delete``
    never block: coroutines then call them directly and not in helper threads.
    """

    def load(self, key: str) -> RetryRecord | None:
        """The record, as an object of the caller's own; None when there is none."""

    def save(self, key: str, record: RetryRecord) -> None:
        """Keep the record instead of what was there."""

    def delete(self, key: str) -> None:
        """Forget the key; nothing happens when it is unknown."""

    def prune_exhausted(self, *, older_than: float, now: float) -> int:
        """Forget exhausted records whose first attempt is at least that old; how many."""


@runtime_checkable
class ComparingAttemptStore(AttemptStore, Protocol):
    """A store that several processes may use for one key and lose no attempt.

    Without ``save_if`` only the threads of one process are kept from overwriting each other.
    """

    def save_if(
        self, key: str, record: RetryRecord | None, *, expected: RetryRecord | None
    ) -> bool:
        """Save, or delete for None, if the stored record is the expected one; else False."""
