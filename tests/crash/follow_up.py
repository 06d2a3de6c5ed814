"""A commit policy of a user's own: that of the library, and a follow-up for each success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from localqueue.codec import JSON_CODEC
from localqueue.commits.open import commit_for
from localqueue.commits.protocol import Commit, Done, Extras, Run, Wait
from localqueue.message import QueueMessage
from localqueue.policies.delivery import EffectivelyOnceDelivery
from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import Put


@dataclass(frozen=True, slots=True)
class WithFollowUp:
    """A success puts a message into ``queue``, in the transaction of its acknowledgement."""

    queue: str
    too_early: bool = False
    """A planted defect: it is put before the acknowledgement, in a transaction of its own."""
    mode: ClassVar[str] = "with-follow-up"
    local_commit: ClassVar[bool] = True
    coordinates_effects: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return {"mode": self.mode, "local_commit": True, "coordinates_effects": False}

    def commit(self, queue: PersistentQueue[Any]) -> Commit:
        given = queue.delivery_policy
        assert isinstance(given, EffectivelyOnceDelivery)
        ours = EffectivelyOnceDelivery(given.idempotency_store, given.result_policy)
        plain = commit_for(PersistentQueue(queue.name, store=queue.store, delivery_policy=ours))
        assert plain is not None
        return _Following(plain, queue, self)


class _Following:
    def __init__(self, plain: Commit, queue: PersistentQueue[Any], policy: WithFollowUp) -> None:
        self._plain = plain
        self._queue = queue
        self._policy = policy
        self.settled = plain.settled
        self.failure = plain.failure
        self.extended = plain.extended
        self.dropped = plain.dropped
        self.recover = plain.recover

    def begin(self, message: QueueMessage[Any]) -> Run | Done | Wait:
        return self._plain.begin(message)

    def success(self, message: QueueMessage[Any], result: Any) -> Extras:
        extras = self._plain.success(message, result)
        put = Put(self._policy.queue, JSON_CODEC.encode([message.id, message.attempts]))
        if self._policy.too_early:
            store, when = self._queue._opened()
            store.enqueue_many([put], now=when.now)
            return extras
        return Extras(extras.records, (*extras.puts, put))
