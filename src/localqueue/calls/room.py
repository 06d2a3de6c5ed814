"""Room in a bounded queue: whether there is any, and waiting for it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from queue import Full

from localqueue.calls.attachment import Attachment
from localqueue.calls.face import Face
from localqueue.calls.patience import deadline_in, remaining, until_next_look
from localqueue.errors import InvalidMessage, StoreClosed
from localqueue.policies.subscriptions import subscriber_queue_name
from localqueue.stores.protocol import Enqueued, Put, QueueIsFull, Waiter


class Room:
    """Looks for a place, and waits until there is one."""

    def __init__(self, attachment: Attachment, face: Face) -> None:
        self._attachment = attachment
        self._face = face

    async def store(
        self, puts: Sequence[Put], full: QueueIsFull, deadline: float | None
    ) -> Sequence[Enqueued]:
        """Store what did not fit just now as soon as it does; ``queue.Full`` at the deadline."""
        attachment, face = self._attachment, self._face
        when = attachment.when or await face.open()
        watched: str | None = None
        waiter: Waiter | None = None
        try:
            while (left := remaining(deadline)) > 0 and full.overflow == "block":
                await self._check_it_can_fit(full.queue, puts)
                if waiter is not None and watched == full.queue:
                    await face.wait(waiter, until_next_look(left))
                else:
                    if waiter is not None:
                        # A publication fits into one subscriber's queue now, and not into the next.
                        waiter.close()
                    # Watched before the next try, so that room made in between is not missed.
                    watched, waiter = full.queue, await self._watch(full.queue)
                try:
                    return await face.ask(lambda store: store.enqueue_many(puts, now=when.now))
                except QueueIsFull as still:
                    full = still
            raise Full(str(full))
        finally:
            if waiter is not None:
                waiter.close()

    async def pause(self, seconds: float, queues: Collection[str]) -> None:
        """Let the consumers catch up: until there is room, or the time is over."""
        attachment, face = self._attachment, self._face
        deadline = deadline_in(seconds)
        # What the producer put is stored: that the queue was closed since is for its next call.
        with contextlib.suppress(StoreClosed):
            # Watched before looking, so that room made in between is not missed.
            waiter = await face.ask(lambda store: store.watch(queues, "room"))
            try:
                while (left := remaining(deadline)) > 0 and attachment.when is not None:
                    if not await self._is_missing(queues):
                        return
                    await face.wait(waiter, until_next_look(left))
            finally:
                waiter.close()

    async def is_full(self) -> bool:
        """Whether a put would find no room; of a topic, for one of its subscribers."""
        name = self._attachment.name
        own = await self._face.ask(lambda store: store.settings(name))
        if own is None or own[0].fanout is None:
            return await self._is_missing([name])
        subscribers = await self._face.ask(lambda store: store.subscribers(name))
        return await self._is_missing([subscriber_queue_name(name, one) for one in subscribers])

    async def _is_missing(self, queues: Collection[str]) -> bool:
        """Whether one of these queues has no room."""
        for queue in queues:
            if await self._has_none(queue):
                return True
        return False

    async def _has_none(self, queue: str) -> bool:
        attachment, face = self._attachment, self._face
        when = attachment.when or await face.open()
        found = await face.ask(lambda store: store.settings(queue))
        maxsize = 0 if found is None else found[0].maxsize
        if maxsize <= 0:
            return False
        return maxsize <= await face.ask(lambda store: store.waiting(queue, now=when.now))

    async def _watch(self, queue: str) -> Waiter:
        return await self._face.ask(lambda store: store.watch([queue], "room"))

    async def _check_it_can_fit(self, queue: str, puts: Sequence[Put]) -> None:
        if len(puts) == 1:
            return
        found = await self._face.ask(lambda store: store.settings(queue))
        if found is not None and 0 < found[0].maxsize < len(puts):
            raise InvalidMessage(
                f"a batch of {len(puts):,} never fits into a queue of {found[0].maxsize:,};"
                " put_stream puts it in chunks that do"
            )
