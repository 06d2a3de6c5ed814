"""The queue's own store, as a commit sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from localqueue.clock import StoreTime
from localqueue.codec import Codec
from localqueue.errors import LeaseLost, UnsupportedByStore
from localqueue.message import QueueMessage, State
from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import QueueStore, StoredMessage
from localqueue.stores.records import Record, RecordChange
from localqueue.stores.sqlite.store import SQLiteQueueStore

SLICE = 200


@dataclass(frozen=True, slots=True)
class Home:
    """Where the messages are: what is written there can share the acknowledgement's transaction."""

    queue: str
    store: QueueStore
    when: StoreTime
    codec: Codec
    keeps_records: bool
    """A custom store with the simple verbs keeps none: then nothing shares a transaction."""

    @classmethod
    def of(cls, queue: PersistentQueue[Any]) -> Self:
        store, when = queue._opened()
        return cls(queue.name, store, when, queue.codec_policy, _keeps_records(store, when))

    @property
    def place(self) -> str:
        """Tells stores apart within this process."""
        if isinstance(self.store, SQLiteQueueStore):
            return str(self.store.path)
        return str(id(self.store))

    def wall(self) -> float:
        return self.when.clock.wall()

    def load(self, kind: str, key: str) -> Record | None:
        return self.store.load_record(kind, key, now=self.when.now)

    def change(self, *changes: RecordChange) -> list[int]:
        """In one transaction; RecordConflict when one is not as expected."""
        return self.store.change_records(changes, now=self.when.now)

    def scan(self, kind: str, prefix: str) -> Iterator[Record]:
        """All records whose key begins so, also while the caller removes some of them."""
        after = ""
        while True:
            found = self.store.scan_records(
                kind, prefix=prefix, after=after, limit=SLICE, now=self.when.now
            )
            yield from found
            if len(found) < SLICE:
                return
            after = found[-1].key

    def message(self, message_id: str) -> StoredMessage | None:
        return self.store.read(self.queue, message_id)

    def seconds_left(self, message_id: str, token: object) -> float | None:
        """How long this lease still holds, 0 when it is over; None for a message not found here."""
        found = self.message(message_id)
        if found is None:
            return None
        if found.state != State.INFLIGHT or found.token != token or found.leased_until is None:
            return 0.0
        return max(0.0, found.leased_until - self.when.now())

    def is_held(self, message_id: str, token: object) -> bool:
        return bool(self.seconds_left(message_id, token))

    def check_held(self, message: QueueMessage[Any]) -> None:
        """LeaseLost when this delivery has no time left: another one may begin at any moment."""
        if not self.seconds_left(message.id, message.token):
            raise _lost(message)

    def check_owned(self, message: QueueMessage[Any]) -> None:
        """LeaseLost when the message is gone or somebody else's; a late end is still an end."""
        found = self.message(message.id)
        if found is None or found.state != State.INFLIGHT or found.token != message.token:
            raise _lost(message)

    def comes_again(self, message_id: str) -> bool:
        """Whether a delivery of it is under way or to come: it is neither gone nor dead."""
        found = self.message(message_id)
        return found is not None and found.state != State.DEAD

    def is_place_of(self, store: QueueStore) -> bool:
        """Whether this is the same store: the same object, or another one on the same file."""
        if store is self.store:
            return True
        return (
            isinstance(store, SQLiteQueueStore)
            and isinstance(self.store, SQLiteQueueStore)
            and store.path.resolve() == self.store.path.resolve()
        )


def as_message(fields: dict[str, Any], queue: str, value: Any = None) -> QueueMessage[Any]:
    """A message that is gone, as far as a record remembers it."""
    return QueueMessage(
        fields["message_id"], value, queue, dedupe_key=fields.get("dedupe_key"), token=None
    )


def _lost(message: QueueMessage[Any]) -> LeaseLost:
    return LeaseLost(f"the lease of message {message.id} of queue {message.queue!r} is over")


def _keeps_records(store: QueueStore, when: StoreTime) -> bool:
    try:
        store.load_record("ledger", "-", now=when.now)
    except UnsupportedByStore:
        return False
    return True
