"""The simple verbs, one message at a time, by queue and id and on the wall clock.

They act as an operator: on whatever lease there is, which makes the holder's receipt stale. A
custom store needs only these, see ``minimal.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from localqueue.checks import check_seconds
from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.codec import JSON_CODEC
from localqueue.message import QueueMessage, Receipt
from localqueue.stores.present import present
from localqueue.stores.protocol import LeaseRequest, Put

if TYPE_CHECKING:
    from localqueue.stores.protocol import QueueStore

    _Base = QueueStore
else:
    _Base = object


class SimpleVerbs(_Base):
    """Mixed into our stores; every verb is a batch verb with one element."""

    _bound_time: StoreTime | None = None

    def enqueue(
        self,
        queue: str,
        value: Any,
        *,
        available_at: float,
        dedupe_key: str | None = None,
        priority: int = 0,
    ) -> QueueMessage[Any]:
        time = self._time()
        body = JSON_CODEC.encode(value)
        put = Put(
            queue,
            body,
            delay=max(0.0, available_at - time.to_wall(time.now())),
            priority=priority,
            dedupe_key=dedupe_key,
            fingerprint=JSON_CODEC.fingerprint(value, body) if dedupe_key else 0,
        )
        (answer,) = self.enqueue_many([put], now=time.now)
        return present(answer.message, JSON_CODEC, time.drift())

    def dequeue(
        self, queue: str, *, lease_timeout: float, now: float, leased_by: str | None = None
    ) -> QueueMessage[Any] | None:
        time = self._time()
        seconds = check_seconds("lease_timeout", lease_timeout, zero=False)
        request = LeaseRequest((queue,), timeout=seconds, worker=leased_by)
        found = self.lease(request, now=now - time.drift())
        return present(found[0], JSON_CODEC, time.drift()) if found else None

    def get(self, queue: str, message_id: str) -> QueueMessage[Any] | None:
        found = self.read(queue, message_id)
        return None if found is None else present(found, JSON_CODEC, self._time().drift())

    def ack(self, queue: str, message_id: str) -> bool:
        return self.ack_many([Receipt(queue, message_id, None)], now=self._time().now)[0]

    def release(
        self,
        queue: str,
        message_id: str,
        *,
        available_at: float,
        last_error: Mapping[str, Any] | None = None,
        failed_at: float | None = None,
    ) -> bool:
        time = self._time()
        delay = max(0.0, available_at - time.to_wall(time.now()))
        receipt = Receipt(queue, message_id, None)
        return self.release_many([receipt], delay=delay, error=last_error, now=time.now)[0]

    def dead_letter(
        self,
        queue: str,
        message_id: str,
        *,
        last_error: Mapping[str, Any] | None = None,
        failed_at: float | None = None,
    ) -> bool:
        receipt = Receipt(queue, message_id, None)
        return self.dead_letter_many([receipt], error=last_error, now=self._time().now)[0]

    def requeue_dead(self, queue: str, message_id: str, *, available_at: float) -> bool:
        time = self._time()
        delay = max(0.0, available_at - time.to_wall(time.now()))
        return self.requeue_dead_many(queue, [message_id], delay=delay, now=time.now)[0]

    def empty(self, queue: str, *, now: float) -> bool:
        return self.qsize(queue, now=now - self._time().drift()) == 0

    def _time(self) -> StoreTime:
        if self._bound_time is None:
            self._bound_time = StoreTime(SYSTEM_CLOCK, self.open_clock(SYSTEM_CLOCK))
        return self._bound_time
