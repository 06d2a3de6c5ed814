"""What the result policy asks for: whether a result is kept, where, and who gets it."""

from __future__ import annotations

from typing import Any

from localqueue.commits.drawer import Drawer
from localqueue.commits.home import Home
from localqueue.commits.keys import Keys
from localqueue.commits.ledger import INLINE
from localqueue.commits.work import Work
from localqueue.idempotency.record import IdempotencyRecord
from localqueue.policies.resolved import trait
from localqueue.policies.results import ResultPolicy
from localqueue.stores.records import RecordChange


class KeptResults:
    """Results in the ledger's records, in a store of the user, or in the queue's own."""

    def __init__(self, policy: ResultPolicy, home: Home, *, with_ledger: bool) -> None:
        self.stores = policy.stores_result
        self._answers = policy.returns_cached_result
        given = trait(policy, "result_store", None)
        self._drawer: Drawer | None = None
        if self.stores and (given is not None or not with_ledger):
            self._drawer = Drawer(given, home, "result_store")
        self.is_foreign = self._drawer is not None and not self._drawer.shares
        self.is_apart_from_ledger = self._drawer is not None

    def ledger_key(self, keys: Keys) -> str | None:
        """What the ledger says about where the result is."""
        if not self.stores:
            return None
        return INLINE if self._drawer is None else keys.result

    def store_key(self, keys: Keys) -> str | None:
        """What envelopes say about it."""
        drawer = self._drawer
        return keys.result if drawer is not None and drawer.is_given else None

    def with_ack(self, work: Work) -> list[RecordChange]:
        drawer = self._drawer
        return [] if drawer is None else drawer.change(work.keys.result, work.result)

    def save_elsewhere(self, work: Work) -> None:
        if self._drawer is not None and self.is_foreign:
            self._drawer.save(work.keys.result, work.result)

    def answer(self, result: Any) -> Any:
        """What a delivery returns whose handler was not run again."""
        return result if self._answers else None

    def recall(self, record: IdempotencyRecord) -> Any:
        """The result of a key that succeeded, if repetitions get it."""
        if not self._answers or record.result_key is None:
            return None
        if record.result_key == INLINE:
            return record.metadata.get("result")
        return None if self._drawer is None else self._drawer.load(record.result_key)
