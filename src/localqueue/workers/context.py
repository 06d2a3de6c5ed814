"""What a handler may know of the message it runs for, and how it is told to stop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from localqueue.checks import check_key, check_seconds
from localqueue.errors import ConfigurationError, InvalidArgument, LeaseLost, LocalQueueError
from localqueue.message import QueueMessage
from localqueue.stores.protocol import PREFETCHED


class CurrentMessage:
    """The delivery that a handler runs for; ``current_message()`` is how it gets this.

    A thread cannot be stopped from outside. A handler that runs long looks at ``cancelled`` now and
    then, calls ``check()``, or sleeps with ``wait()`` instead of ``time.sleep``.
    """

    def __init__(self, slot: Slot, message: QueueMessage[Any]) -> None:
        self.message = message
        self._slot = slot
        self._began = slot.began
        self._reason: LocalQueueError | None = None
        self._lease_lost = False
        self._told = threading.Event()
        self.told_at = 0.0
        """When it was told to end; of ``time.monotonic()``."""

    @property
    def attempt(self) -> int:
        """Which delivery this is; the first is 1."""
        return self.message.attempts

    @property
    def lease_lost(self) -> bool:
        """The lease is over, and someone else may run the message now: the result is dropped."""
        return self._lease_lost

    @property
    def cancelled(self) -> bool:
        """The handler should end: its time is over, the message was cancelled, the lease is lost,
        or the worker stops."""
        return self._reason is not None

    @property
    def reason(self) -> LocalQueueError | None:
        """Why it should end: what ``check()`` raises."""
        return self._reason

    def check(self) -> None:
        """Raise HandlerTimeout, HandlerCancelled, LeaseLost or WorkerStopped if it should end."""
        if self._reason is not None:
            raise self._reason

    def wait(self, seconds: float) -> bool:
        """Sleep this long, or until the handler should end: True, then. It blocks the thread."""
        return self._told.wait(check_seconds("seconds", seconds))

    def elapsed(self) -> float:
        """Seconds since the handler began."""
        return time.monotonic() - self._began

    def progress(self, so_far: str | float) -> None:
        """Report how far the handler is: a text, or a fraction from 0 to 1.

        The worker's ``on_progress`` is called at once; the message's history gets it as the note of
        an ``extended`` event, a few times a second at most, and the lease is extended with it.
        """
        self._slot.report(self, progress_note(so_far))

    def tell(self, error: LocalQueueError) -> None:
        """The handler should end because of this; the first reason stays. For workers."""
        if isinstance(error, LeaseLost):
            self._lease_lost = True
        if self._reason is None:
            self.told_at = time.monotonic()
            self._reason = error
        self._told.set()


class Slot:
    """The place where one handler runs at a time. Its runner writes, the foreman reads.

    What the foreman does about a message it does to the CurrentMessage of that message, and the
    runner looks there when the handler has ended. A handler that nobody told anything takes no
    lock.
    """

    __slots__ = (
        "_ended", "_lock", "_since", "_worked", "began", "beginning", "count", "current",
        "given_up", "idle", "inside", "interrupt", "is_left", "message", "note", "number",
        "on_progress",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        on_progress: Callable[[QueueMessage[Any], str], object] | None = None,
    ) -> None:
        self.number = number
        self.message: QueueMessage[Any] | None = None
        """What runs here now, or ran last if nothing was waited for since."""
        self.began = 0.0
        self.current: CurrentMessage | None = None
        """Made when somebody asks for it, or has something to tell."""
        self.idle = False
        """Whether its runner waits for a message."""
        self.inside = False
        """Whether its runner is in the handler, and may be interrupted there."""
        self.beginning = False
        """Whether it asks a commit before that: the handler itself has not begun."""
        self.given_up: QueueMessage[Any] | None = None
        """What was settled although its handler did not end; until that ends."""
        self.is_left = False
        """Whether another slot has taken the place of this one."""
        self._ended: QueueMessage[Any] | None = None
        self.note: tuple[QueueMessage[Any], str] | None = None
        """Progress that the store was not told of yet."""
        self.interrupt: Callable[[LocalQueueError], object] | None = None
        """What can be done from outside about a handler that should end."""
        self.on_progress = on_progress
        self.count = 0
        """How many handlers began here."""
        self._worked = 0.0
        self._since: float | None = None
        self._lock = threading.Lock()

    def worked(self, now: float) -> float:
        """Seconds that its runner did not wait for messages."""
        since = self._since
        return self._worked + (0.0 if since is None else now - since)

    def wake(self) -> None:
        """There are messages."""
        # Before one is taken: the foreman counts who is free.
        self.idle = False
        self._since = time.monotonic()

    def sleep(self) -> None:
        """There are none."""
        self.rest()
        self.idle = True

    def begin(self, message: QueueMessage[Any]) -> None:
        """A handler is about to run; in its runner."""
        # In this order: the foreman must not find the new message with the old time.
        self.began = time.monotonic()
        self.current = None
        self.message = message
        self.count += 1
        _running.set((self, message))

    def rest(self) -> None:
        """Nothing runs here."""
        self.message = None
        self.current = None
        # A value may be large, and the next told to end may be long in coming.
        self._ended = self.given_up = None
        since, self._since = self._since, None
        if since is not None:
            self._worked += time.monotonic() - since

    def current_of(self, message: QueueMessage[Any]) -> CurrentMessage:
        """What the handler of this message is told, even if that has ended by now."""
        with self._lock:
            current = self.current
            if current is None or current.message is not message:
                current = CurrentMessage(self, message)
                if self.message is message:
                    self.current = current
            return current

    def told(self, message: QueueMessage[Any]) -> CurrentMessage | None:
        """What the handler of this message was told or asked, if anything."""
        current = self.current
        return current if current is not None and current.message is message else None

    def tell(self, message: QueueMessage[Any], error: LocalQueueError) -> None:
        """The handler of this message should end, if it still runs. From any thread."""
        current = self.current_of(message)
        first = not current.cancelled
        current.tell(error)
        if first and self.interrupt is not None and self.message is message:
            self.interrupt(error)

    # --- a handler that does not end ------------------------------------------------------------
    def ends(self, message: QueueMessage[Any]) -> bool:
        """The handler has ended; False when its delivery was settled without it. In its runner,
        after ``inside`` is False."""
        if self.told(message) is None:
            return True
        with self._lock:
            self._ended = message
            was_given_up = self.given_up is message
            self.given_up = None
            return not was_given_up

    def give_up(self, message: QueueMessage[Any]) -> bool:
        """Whether the caller settles this delivery, because its handler does not end.

        For messages whose handlers were told to end before: only they ask in ``ends``.
        """
        with self._lock:
            if not self._is_in_handler(message) or self.given_up is message:
                return False
            self.given_up = message
            return True

    def is_stuck(self) -> bool:
        """Whether a handler that was given up is still at it."""
        message = self.given_up
        return message is not None and self._is_in_handler(message)

    def leave(self) -> Slot | None:
        """The slot that takes the place of this one, if that is stuck."""
        with self._lock:
            if self.is_left or not self.is_stuck():
                return None
            self.is_left = True
        successor = Slot(self.number, self.on_progress)
        successor.count = self.count
        successor._worked = self.worked(time.monotonic())
        return successor

    def _is_in_handler(self, message: QueueMessage[Any]) -> bool:
        if self.message is not message or self._ended is message:
            return False
        return self.inside and not self.beginning

    def report(self, current: CurrentMessage, note: str) -> None:
        if self.message is current.message:
            self.note = (current.message, note)
        if self.on_progress is not None:
            self.on_progress(current.message, note)


_running: ContextVar[tuple[Slot, QueueMessage[Any]] | None] = ContextVar(
    "localqueue_running", default=None
)


def current_message() -> CurrentMessage:
    """The delivery that the calling handler runs for.

    Threads and tasks that a handler starts with its context have it too. ConfigurationError where
    no worker runs.
    """
    running = _running.get()
    if running is None:
        raise ConfigurationError("current_message() is for handlers that a worker runs")
    slot, message = running
    return slot.current_of(message)


@contextlib.contextmanager
def running_in(slot: Slot, message: QueueMessage[Any]) -> Iterator[None]:
    """The code inside runs for this message; afterwards it runs for whom it did before."""
    before = _running.get()
    slot.begin(message)
    try:
        yield
    finally:
        slot.rest()
        _running.set(before)


def nothing_runs() -> None:
    """The runner of this thread or task is done."""
    _running.set(None)


def progress_note(so_far: str | float) -> str:
    """A report as the store keeps it."""
    if isinstance(so_far, (int, float)) and not isinstance(so_far, bool):
        if not 0 <= so_far <= 1:
            raise InvalidArgument("progress is a text, or a fraction from 0 to 1")
        return f"{so_far:.0%}"
    if so_far == PREFETCHED:
        raise InvalidArgument(
            f"{PREFETCHED!r} means that a handler has not begun; say it otherwise"
        )
    return check_key("progress", so_far)
