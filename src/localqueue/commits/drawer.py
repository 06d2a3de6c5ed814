"""Where a commit puts values: a store of the user, or the queue's own."""

from __future__ import annotations

from typing import Any

from localqueue.commits.home import Home
from localqueue.errors import ConfigurationError
from localqueue.results.protocol import ResultStore
from localqueue.results.records import ResultRecords
from localqueue.stores.records import RecordChange

KEPT_FOR = 7 * 86_400.0
"""How long the queue's own store keeps envelopes of work that is over, as it keeps its journal."""


class Drawer:
    """A result store that may be the queue's own: then what goes in shares its transactions."""

    def __init__(self, given: ResultStore | None, home: Home, option: str) -> None:
        self.is_given = given is not None
        self.shares = home.keeps_records and (
            given is None or (isinstance(given, ResultRecords) and home.is_place_of(given.store))
        )
        if given is None and not self.shares:
            raise ConfigurationError(
                f"the store of queue {home.queue!r} keeps no records; give the policy {option}="
            )
        self._own = ResultRecords.of(home.store)
        self._store: ResultStore = self._own if self.shares or given is None else given

    def load(self, key: str) -> Any:
        return self._store.load(key)

    def save(self, key: str, value: Any) -> None:
        self._store.save(key, value)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def change(self, key: str, value: Any, *, passing: bool = False) -> list[RecordChange]:
        """For the queue's transaction; nothing when it does not share it.

        A ``passing`` value is let go after a while, unless it is in a store of the user's.
        """
        if not self.shares:
            return []
        ttl = KEPT_FOR if passing and not self.is_given else None
        return [self._own.change(key, value, ttl=ttl)]

    def removal(self, key: str) -> list[RecordChange]:
        return [self._own.removal(key)] if self.shares else []
