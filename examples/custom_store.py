"""A store of one's own, with only the simple verbs: here a dictionary, elsewhere whatever you have.

The queue wraps such an object by itself. ``SimpleStoreContract`` of ``localqueue.testing`` proves
one, as it does with the class below.

    python examples/custom_store.py
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

from localqueue import PersistentQueue, QueueMessage, QueueStats

Message = QueueMessage[Any]


class DictionaryStore:
    """Messages in a dictionary, in the order of their puts. Times are those of ``time.time()``."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str], Message] = {}
        self._seen: dict[tuple[str, str], float] = {}

    # --- a message's way through the queue ------------------------------------------------------
    def enqueue(
        self,
        queue: str,
        value: Any,
        *,
        available_at: float,
        dedupe_key: str | None = None,
        priority: int = 0,
    ) -> Message:
        for message in self._of(queue):
            if dedupe_key is not None and message.dedupe_key == dedupe_key:
                return message
        new = QueueMessage(
            uuid.uuid4().hex,
            value,
            queue,
            created_at=time.time(),
            available_at=available_at,
            dedupe_key=dedupe_key,
            priority=priority,
        )
        return self._keep(new)

    def dequeue(
        self, queue: str, *, lease_timeout: float, now: float, leased_by: str | None = None
    ) -> Message | None:
        ready = self._ready(queue, now)
        if not ready:
            return None
        # min() keeps the first of equals, which is the one put first.
        first = min(ready, key=lambda message: (-message.priority, message.available_at))
        return self._keep(
            replace(
                first,
                state="inflight",
                attempts=first.attempts + 1,
                leased_until=now + lease_timeout,
                leased_by=leased_by,
            )
        )

    def ack(self, queue: str, message_id: str) -> bool:
        return self._messages.pop((queue, message_id), None) is not None

    def release(
        self,
        queue: str,
        message_id: str,
        *,
        available_at: float,
        last_error: dict[str, Any] | None = None,
        failed_at: float | None = None,
    ) -> bool:
        return self._end(queue, message_id, "ready", last_error, failed_at, available_at)

    def dead_letter(
        self,
        queue: str,
        message_id: str,
        *,
        last_error: dict[str, Any] | None = None,
        failed_at: float | None = None,
    ) -> bool:
        return self._end(queue, message_id, "dead", last_error, failed_at)

    def requeue_dead(self, queue: str, message_id: str, *, available_at: float) -> bool:
        message = self.get(queue, message_id)
        if message is None or message.state != "dead":
            return False
        return self._end(queue, message_id, "ready", None, None, available_at)

    # --- looking ----------------------------------------------------------------------------------
    def get(self, queue: str, message_id: str) -> Message | None:
        return self._messages.get((queue, message_id))

    def qsize(self, queue: str, *, now: float) -> int:
        return len(self._ready(queue, now))

    def empty(self, queue: str, *, now: float) -> bool:
        return self.qsize(queue, now=now) == 0

    def stats(self, queue: str, *, now: float) -> QueueStats:
        messages = self._of(queue)
        ready = self.qsize(queue, now=now)
        inflight = [m for m in messages if m.state == "inflight" and (m.leased_until or 0) > now]
        dead = len(self.dead_letters(queue))
        workers = [message.leased_by for message in inflight if message.leased_by]
        return QueueStats(
            ready=ready,
            delayed=len(messages) - ready - len(inflight) - dead,
            inflight=len(inflight),
            dead=dead,
            total=len(messages),
            by_worker_id={name: workers.count(name) for name in workers},
            last_seen_by_worker_id={
                worker: at for (name, worker), at in self._seen.items() if name == queue
            },
        )

    def record_worker_heartbeat(self, queue: str, worker_id: str, *, now: float) -> None:
        self._seen[queue, worker_id] = now

    # --- dead letters -----------------------------------------------------------------------------
    def dead_letters(self, queue: str, *, limit: int | None = None) -> list[Message]:
        dead = [message for message in self._of(queue) if message.state == "dead"]
        return sorted(dead, key=_failed_at)[:limit]

    def count_dead_letters_older_than(self, queue: str, *, older_than: float, now: float) -> int:
        return len(self._old(queue, now - older_than))

    def prune_dead_letters(self, queue: str, *, older_than: float, now: float) -> int:
        return sum(self.ack(queue, dead.id) for dead in self._old(queue, now - older_than))

    def purge(self, queue: str) -> int:
        return sum(self.ack(queue, message.id) for message in self._of(queue))

    # --- inside -----------------------------------------------------------------------------------
    def _of(self, queue: str) -> list[Message]:
        return [message for (name, _), message in self._messages.items() if name == queue]

    def _ready(self, queue: str, now: float) -> list[Message]:
        """Those that are due, and those whose lease is over."""
        return [
            message
            for message in self._of(queue)
            if (message.state == "ready" and message.available_at <= now)
            or (message.state == "inflight" and (message.leased_until or 0) <= now)
        ]

    def _old(self, queue: str, before: float) -> list[Message]:
        return [dead for dead in self.dead_letters(queue) if _failed_at(dead) <= before]

    def _keep(self, message: Message) -> Message:
        self._messages[message.queue, message.id] = message
        return message

    def _end(
        self,
        queue: str,
        message_id: str,
        state: str,
        error: dict[str, Any] | None,
        failed_at: float | None,
        available_at: float | None = None,
    ) -> bool:
        message = self.get(queue, message_id)
        if message is None:
            return False
        self._keep(
            replace(
                message,
                state=state,
                leased_until=None,
                leased_by=None,
                available_at=message.available_at if available_at is None else available_at,
                # Without an error the old one stays.
                last_error=message.last_error if error is None else error,
                failed_at=message.failed_at if error is None else failed_at,
            )
        )
        return True


def _failed_at(message: Message) -> float:
    return message.created_at if message.failed_at is None else message.failed_at


def main() -> None:
    queue: PersistentQueue[str] = PersistentQueue("jobs", store=DictionaryStore())
    queue.put("first")
    queue.put("second", dedupe_key="2")
    print("a repeated key is a duplicate:", queue.put("second", dedupe_key="2").duplicate)

    message = queue.get_message(leased_by="worker-1")
    queue.release(message, error=OSError("not now"))
    print("a stale receipt changes nothing:", not queue.ack(message))
    print("in order:", [queue.get(), queue.get()])
    queue.task_done()
    queue.task_done()
    print("left:", queue.stats().total)


if __name__ == "__main__":
    main()
