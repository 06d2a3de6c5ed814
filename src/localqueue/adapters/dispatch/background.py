"""Workers in the background of the queues that a dispatcher is attached to."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from localqueue.adapters.dispatch import process_end
from localqueue.checks import check_callables
from localqueue.errors import AdapterClosed, ConfigurationError
from localqueue.message import QueueMessage
from localqueue.outcome import Snooze
from localqueue.policies.subscriptions import subscriber_queue_name
from localqueue.queue import PersistentQueue

if TYPE_CHECKING:
    # Loaded with the first dispatcher: who only puts and gets needs no worker.
    from localqueue.workers import Worker

log = logging.getLogger("localqueue.dispatch")

Handler = Callable[[QueueMessage[Any]], object]
Queue = PersistentQueue[Any]
LOOK = 0.025
"""How often ``work_off`` looks whether something is left."""
GIVE_BACK = 5.0
"""How long a worker is waited for that gives back what it has."""


class Background:
    """One worker for each queue, started with the first dispatch.

    The queues are not kept alive by this, the workers that run are.
    """

    def __init__(
        self, handlers: Iterable[Handler], concurrency: int, options: dict[str, Any]
    ) -> None:
        self.handlers: tuple[Handler, ...] = check_callables("handlers", handlers)
        if any(map(inspect.iscoroutinefunction, self.handlers)):
            raise ConfigurationError(
                'handlers of a dispatcher are plain functions; use Worker(..., kind="asyncio")'
            )
        self.concurrency = concurrency
        self._options = options
        self._attached: list[weakref.ref[Queue]] = []
        self._workers: list[Worker] = []
        self._closed = False
        self._is_at_exit = False
        self._here = threading.local()
        """Whether this thread is in a handler."""
        self._start_anew()
        process_end.watch(self)

    @property
    def closed(self) -> bool:
        return self._closed

    def attach(self, queue: Queue) -> None:
        # Now, so that an option that no worker takes is refused where it was written.
        self._make(queue, self._handle)
        with self._lock:
            self._attached = [known for known in self._attached if known() is not None]
            self._attached.append(weakref.ref(queue))

    def detach(self, queue: Queue) -> None:
        with self._lock:
            self._attached = [known for known in self._attached if known() not in (None, queue)]
            gone = [own for own in self._workers if own.queues[0] is queue]
        self._end(gone, None)

    def dispatch(self, message: QueueMessage[Any]) -> None:
        """See that somebody works for the queue of this message; it is leased there in its turn."""
        if self._pid != os.getpid():
            # Threads did not cross the fork.
            self._start_anew()
        with self._lock:
            if self._closed:
                raise AdapterClosed(
                    f"the dispatcher is closed; message {message.id} is stored and waits for a"
                    " consumer"
                )
            if self._is_at_exit:
                # A handler that is the last to run puts something more: it is stored for later.
                return
            for queue in self._owners(message.queue):
                self._see_to(queue)

    def work_off(self, queue: Queue, limit: int | None) -> int:
        """Handle what is ready, in threads that end with it; how many deliveries ended."""
        count = _Count(self._handle, limit)
        worker = self._make(queue, count.handle, prefetch=0)
        worker.start()
        quiet = 0
        try:
            while not worker.join(LOOK) and not count.is_reached():
                # Twice: what was leased a moment ago is not ready, and has not begun either.
                is_over = count.is_idle() and not self._has_leased(queue) and not _has_ready(queue)
                quiet = quiet + 1 if is_over else 0
                if quiet > 1:
                    break
        finally:
            worker.stop()
            worker.join()
        return count.ended

    def close(self, timeout: float | None) -> bool:
        with self._lock:
            self._closed = True
            workers = list(self._workers)
        return self._end(workers, timeout)

    def end_at_exit(self) -> None:
        """Ask the workers to stop: the process ends, and nobody has closed this."""
        if self._pid != os.getpid():
            # Workers and lock are those of the parent.
            return
        with self._lock:
            self._is_at_exit = True
            workers = list(self._workers)
        for worker in workers:
            worker.stop()

    def wait_at_exit(self, deadline: float) -> None:
        """Let handlers end until then; what still runs is given back, uncharged."""
        if self._pid != os.getpid():
            return
        for worker in list(self._workers):
            try:
                if not worker.join(max(0.0, deadline - time.monotonic())):
                    worker.stop(now=True)
                    worker.join(GIVE_BACK)
            except Exception:
                log.exception("%r did not end well", worker)

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        # Reentrant: the queue of a subscriber that is opened here may be attached as well.
        self._lock = threading.RLock()
        self._workers = []

    def _owners(self, name: str) -> list[Queue]:
        """The attached queues of this name, and the subscriber queues of attached topics."""
        queues = [queue for known in self._attached if (queue := known()) is not None]
        found = [queue for queue in queues if queue.name == name]
        if found:
            return found
        running = [own.queues[0] for own in self._workers if own.queues[0].name == name]
        if running:
            return running
        return [
            queue.subscriber_queue(subscriber)
            for queue in queues
            if queue.routing_policy.fanout
            for subscriber in queue.subscribers()
            if subscriber_queue_name(queue.name, subscriber) == name
        ]

    def _see_to(self, queue: Queue) -> None:
        for own in self._workers:
            if own.queues[0] is queue:
                if not _has_ended(own):
                    return
                self._workers.remove(own)
                break
        self._workers.append(self._make(queue, self._handle).start())

    def _has_leased(self, queue: Queue) -> bool:
        """Whether a worker beside this holds what may come back: leased ahead, and not begun."""
        return any(own.queues[0] is queue and own.is_behind for own in list(self._workers))

    def _make(self, queue: Queue, handler: Callable[[Any], None], **more: Any) -> Worker:
        from localqueue.workers import Worker

        options = {"concurrency": self.concurrency} | self._options | more
        return Worker(queue, handler, **options)

    def _handle(self, _value: Any) -> None:
        from localqueue.workers import current_message

        message = current_message().message
        self._here.handles = True
        try:
            for handler in self.handlers:
                handler(message)
        finally:
            self._here.handles = False

    def _end(self, workers: list[Worker], timeout: float | None) -> bool:
        """Stop them, and wait; whether all have ended in time."""
        for worker in workers:
            worker.stop()
        if getattr(self._here, "handles", False):
            # A handler closes its own dispatcher: waiting for it would be for ever.
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        for worker in workers:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if worker.join(left):
                with self._lock:
                    self._workers = [own for own in self._workers if own is not worker]
        return not any(worker in self._workers for worker in workers)


class _Count:
    """Lets a limited number of deliveries begin."""

    def __init__(self, handle: Callable[[Any], None], limit: int | None) -> None:
        self.ended = 0
        self._began = 0
        self._handle = handle
        self._limit = limit
        self._lock = threading.Lock()

    def handle(self, value: Any) -> None:
        with self._lock:
            if self._limit is not None and self._began >= self._limit:
                raise Snooze(0)
            self._began += 1
        try:
            self._handle(value)
        finally:
            with self._lock:
                self.ended += 1

    def is_reached(self) -> bool:
        return self._limit is not None and self.ended >= self._limit

    def is_idle(self) -> bool:
        return self.ended == self._began


def _has_ready(queue: Queue) -> bool:
    """Whether a worker could lease something now."""
    return queue.qsize() > 0 and not queue.settings().paused


def _has_ended(worker: Worker) -> bool:
    """Whether it does not run any more: only what it raised can have ended it."""
    try:
        return worker.join(0)
    except Exception:
        log.exception("%r ended; it is started again", worker)
        return True
