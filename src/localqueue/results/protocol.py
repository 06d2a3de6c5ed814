"""What a result store does."""

from __future__ import annotations

from typing import Any, Protocol


class ResultStore(Protocol):
    """Keeps values by key: results of handlers, and the envelopes of commit policies.

    Any object with these three methods can be given as a result, outbox, prepare, commit or saga
    store. What is saved is durable when ``save`` returns, as far as the store is durable at all.
    """

    def load(self, key: str) -> Any | None:
        """The value, or None when there is none."""

    def save(self, key: str, value: Any) -> None:
        """Keep this value under the key, instead of what was there."""

    def delete(self, key: str) -> None:
        """Forget the key; nothing happens when it is unknown."""
