"""``queue.aio``: the same queue for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Generic, ParamSpec, Self, TypeVar

from localqueue.calls.attachment import Attachment
from localqueue.calls.awaiting import Awaiting
from localqueue.calls.calls import Calls
from localqueue.message import QueueMessage, QueueStats
from localqueue.put_options import Key, put_options
from localqueue.stores.pending import set_from_any_thread
from localqueue.stores.protocol import (
    LONGEST_READER_AGE,
    Cancelled,
    JournalEvent,
    JournalReader,
    LeaseAnswer,
)
from localqueue.stores.settings import QueueSettings

if TYPE_CHECKING:
    from localqueue.queue import PersistentQueue

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AwaitableQueue(Generic[T]):
    """Every call of a PersistentQueue, to be awaited: same arguments, same answers, same errors.

    No call blocks the event loop, and no thread waits: any number of tasks may wait for a message
    or for room. Tasks of several loops and threads may use it beside the queue itself.

    A call that is cancelled before the store took it changes nothing. One that was taken runs to
    its end: puts and settlements stand, and what was leased for nobody is released at once, so that
    ``asyncio.timeout`` around a get loses no message. (Under AtMostOnceDelivery a message that was
    taken is gone.)
    """

    def __init__(
        self,
        queue: PersistentQueue[T],
        attachment: Attachment,
        dispatch_next: Callable[[], bool],
    ) -> None:
        self.queue = queue
        """The queue itself, whose calls block."""
        self._unfinished = attachment.unfinished
        self._dispatch_next = dispatch_next
        self._face = Awaiting(attachment)
        self._calls = Calls(attachment, self._face)

    @property
    def name(self) -> str:
        return self.queue.name

    def __repr__(self) -> str:
        return f"{self.queue!r}.aio"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the queue itself: its blocking calls raise StoreClosed from now on, too."""
        await self._run(self.queue.close)

    # --- putting --------------------------------------------------------------------------------
    async def put(
        self,
        item: T,
        block: bool = True,
        timeout: float | None = None,
        delay: float = 0.0,
        priority: int = 0,
        *,
        dedupe_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        ttl: float | None = None,
        request_id: str | None = None,
    ) -> QueueMessage[T]:
        """Notification and dispatch run in a helper thread, and are waited for."""
        options = put_options(delay, priority, dedupe_key, headers, ordering_key, ttl, request_id)
        return await self._calls.putting.put(item, block, timeout, options)

    async def put_nowait(self, item: T) -> QueueMessage[T]:
        return await self.put(item, block=False)

    async def put_many(
        self,
        items: Iterable[T],
        block: bool = True,
        timeout: float | None = None,
        delay: float = 0.0,
        priority: int = 0,
        *,
        dedupe_key: Key = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: Key = None,
        ttl: float | None = None,
    ) -> list[QueueMessage[T]]:
        """The values of a large batch are encoded, and its keys made, in a helper thread."""
        options = put_options(delay, priority, dedupe_key, headers, ordering_key, ttl)
        return await self._calls.putting.put_many(items, block, timeout, options)

    async def put_stream(
        self,
        items: Iterable[T] | AsyncIterable[T],
        chunk: int = 1000,
        *,
        delay: float = 0.0,
        priority: int = 0,
        dedupe_key: Key = None,
        headers: Mapping[str, str] | None = None,
        ordering_key: Key = None,
        ttl: float | None = None,
        on_progress: Callable[[int], object] | None = None,
    ) -> int:
        """The items may come from an async iterable; iterating runs on the loop."""
        options = put_options(delay, priority, dedupe_key, headers, ordering_key, ttl)
        putting = self._calls.putting
        if isinstance(items, AsyncIterable):
            return await putting.put_async_stream(items, chunk, options, on_progress)
        return await putting.put_stream(items, chunk, options, on_progress)

    # --- getting --------------------------------------------------------------------------------
    async def get(
        self, block: bool = True, timeout: float | None = None, leased_by: str | None = None
    ) -> T:
        message: QueueMessage[T] = await self._calls.getting.get(block, timeout, leased_by)
        return message.value

    async def get_nowait(self) -> T:
        return await self.get(block=False)

    async def get_message(
        self, block: bool = True, timeout: float | None = None, leased_by: str | None = None
    ) -> QueueMessage[T]:
        return await self._calls.getting.get_message(block, timeout, leased_by)

    async def get_messages(
        self,
        max_messages: int,
        block: bool = True,
        timeout: float | None = None,
        leased_by: str | None = None,
    ) -> list[QueueMessage[T]]:
        return await self._calls.getting.get_messages(max_messages, block, timeout, leased_by)

    async def peek(self, limit: int = 1) -> list[QueueMessage[T]]:
        return await self._run(self.queue.peek, limit)

    # --- settling -------------------------------------------------------------------------------
    async def ack(self, message: QueueMessage[T] | str) -> bool:
        return await self._calls.settling.ack(message)

    async def ack_many(self, messages: Iterable[QueueMessage[T] | str]) -> list[bool]:
        return await self._calls.settling.ack_many(messages)

    async def release(
        self,
        message: QueueMessage[T] | str,
        delay: float = 0.0,
        error: BaseException | str | None = None,
    ) -> bool:
        return await self._calls.settling.release(message, delay, error)

    async def dead_letter(
        self, message: QueueMessage[T] | str, error: BaseException | str | None = None
    ) -> bool:
        return await self._calls.settling.dead_letter(message, error)

    async def extend(
        self, message: QueueMessage[T], timeout: float | None = None, note: str | None = None
    ) -> LeaseAnswer:
        return await self._calls.settling.extend(message, timeout, note)

    async def cancel(self, message: QueueMessage[T] | str) -> Cancelled:
        return await self._calls.settling.cancel(message)

    async def task_done(self) -> None:
        """Acknowledge a message of ``get()``: the oldest of this task, else the oldest of all."""
        await self._calls.settling.task_done()

    async def join(self) -> None:
        empty: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        take_back = self._unfinished.when_empty(lambda: set_from_any_thread(empty, None))
        try:
            await empty
        finally:
            take_back()

    # --- looking --------------------------------------------------------------------------------
    async def inspect(self, message_id: str) -> QueueMessage[T] | None:
        return await self._run(self.queue.inspect, message_id)

    async def qsize(self) -> int:
        return await self._run(self.queue.qsize)

    async def empty(self) -> bool:
        return await self._run(self.queue.empty)

    async def full(self) -> bool:
        return await self._run(self.queue.full)

    async def stats(self) -> QueueStats:
        return await self._run(self.queue.stats)

    async def settings(self) -> QueueSettings:
        return await self._run(self.queue.settings)

    async def pause(self) -> None:
        await self._run(self.queue.pause)

    async def resume(self) -> None:
        await self._run(self.queue.resume)

    async def record_worker_heartbeat(self, worker_id: str) -> None:
        await self._run(self.queue.record_worker_heartbeat, worker_id)

    # --- dead letters ---------------------------------------------------------------------------
    async def dead_letters(self, limit: int | None = None) -> list[QueueMessage[T]]:
        return await self._run(self.queue.dead_letters, limit)

    async def requeue_dead(self, message: QueueMessage[T] | str, delay: float = 0.0) -> bool:
        return await self._run(self.queue.requeue_dead, message, delay)

    async def requeue_dead_letters(self, limit: int | None = None, *, delay: float = 0.0) -> int:
        return await self._run(self.queue.requeue_dead_letters, limit, delay=delay)

    async def prune_dead_letters(self, older_than: float) -> int:
        return await self._run(self.queue.prune_dead_letters, older_than)

    async def count_dead_letters_older_than(self, older_than: float) -> int:
        return await self._run(self.queue.count_dead_letters_older_than, older_than)

    async def purge(self) -> int:
        return await self._run(self.queue.purge)

    # --- journal --------------------------------------------------------------------------------
    async def journal(self, after: str | None = None, limit: int = 1000) -> list[JournalEvent]:
        return await self._run(self.queue.journal, after, limit)

    async def history(self, message_id: str) -> list[JournalEvent]:
        return await self._run(self.queue.history, message_id)

    async def register_reader(
        self, name: str, position: str | None = None, max_age: float = LONGEST_READER_AGE
    ) -> JournalReader:
        return await self._run(self.queue.register_reader, name, position, max_age)

    async def commit_reader(self, name: str, position: str) -> None:
        await self._run(self.queue.commit_reader, name, position)

    async def drop_reader(self, name: str) -> bool:
        return await self._run(self.queue.drop_reader, name)

    async def readers(self) -> list[JournalReader]:
        return await self._run(self.queue.readers)

    # --- publish/subscribe ----------------------------------------------------------------------
    async def subscribe(self, name: str, start: str = "now") -> bool:
        return await self._run(self.queue.subscribe, name, start)

    async def unsubscribe(self, name: str) -> bool:
        return await self._run(self.queue.unsubscribe, name)

    async def subscribers(self) -> list[str]:
        return await self._run(self.queue.subscribers)

    async def subscriber_queue_name(self, subscriber: str) -> str:
        return await self._run(self.queue.subscriber_queue_name, subscriber)

    async def subscriber_queue(self, subscriber: str) -> AwaitableQueue[T]:
        """The awaitable twin of the subscriber's queue."""
        return (await self._run(self.queue.subscriber_queue, subscriber)).aio

    # --- notification and dispatch --------------------------------------------------------------
    async def wait_for_notification(self, timeout: float | None = None) -> bool:
        """A notification that only threads can wait for costs one thread for all the tasks."""
        return await self._calls.wait_for_notification(timeout)

    async def dispatch_pending(self, limit: int | None = None) -> int:
        """The handlers run in helper threads; when cancelled, the one at work comes to its end."""
        return await self._calls.dispatch_pending(self.queue, self._dispatch_next, limit)

    async def _run(self, call: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """A blocking call of the queue that waits for nothing but the store, in a thread."""
        return await self._face.run(partial(call, *args, **options))
