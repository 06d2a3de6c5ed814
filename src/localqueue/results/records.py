"""Results as records of a queue store: beside its messages, or in a file of their own."""

from __future__ import annotations

import json
from typing import Any

from localqueue.checks import check_key
from localqueue.codec import JSON_CODEC
from localqueue.errors import InvalidMessage, InvalidResult, StoreCorrupt, StoreUnsupported
from localqueue.stores.protocol import QueueStore
from localqueue.stores.record_view import ANY_TIME, RecordView
from localqueue.stores.records import RecordChange

KIND = "result"
VERSION = 1


class ResultRecords(RecordView):
    """Results in any store of localqueue, for example that of a queue: ``of(queue.store)``.

    Values are kept as JSON: what comes back is a copy, tuples are lists, and InvalidResult is
    raised for what JSON cannot say.
    """

    @classmethod
    def of(cls, store: QueueStore) -> ResultRecords:
        """A view on the records of a store; closing it leaves the store open."""
        return ResultRecords(store)

    def load(self, key: str) -> Any | None:
        check_key("result key", key)
        with self._asking():
            found = self.store.load_record(KIND, key, now=ANY_TIME)
        return None if found is None else decode_result(found.value, key)

    def save(self, key: str, value: Any) -> None:
        with self._asking():
            self.store.change_records([self.change(key, value)], now=ANY_TIME)

    def delete(self, key: str) -> None:
        with self._asking():
            self.store.change_records([self.removal(key)], now=ANY_TIME)

    def change(self, key: str, value: Any, *, ttl: float | None = None) -> RecordChange:
        """What ``save`` would write, for a transaction of the store with other things in it."""
        return RecordChange(KIND, check_key("result key", key), encode_result(value), ttl=ttl)

    def removal(self, key: str) -> RecordChange:
        """What ``delete`` would do, for a transaction of the store."""
        return RecordChange(KIND, check_key("result key", key), None)


def encode_result(value: Any) -> bytes:
    """The value as it is kept; InvalidResult when JSON cannot say it."""
    try:
        return JSON_CODEC.encode({"v": VERSION, "value": value})
    except InvalidMessage as error:
        reason = str(error).removeprefix("queue values must be JSON-serializable: ")
        raise InvalidResult(f"a result must be JSON-serializable: {reason}") from error


def decode_result(kept: bytes, key: str) -> Any:
    """The value; StoreUnsupported when a newer release wrote it."""
    try:
        fields = json.loads(kept)
        version, value = fields["v"], fields["value"]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreCorrupt(f"what is kept as the result {key!r} is damaged") from error
    if version > VERSION:
        raise StoreUnsupported(
            f"the result {key!r} has version {version}; this release knows up to {VERSION}"
        )
    return value
