"""When a worker stops: asked once it drains, asked twice it stops at once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

from localqueue.checks import check_seconds

SIGNALS = (signal.SIGTERM, signal.SIGINT)
POKE = signal.SIGURG
"""What threads of the worker send to the main thread: a number that nobody stops a program with.

Signals of one number that come together are heard once, so that with a number of SIGNALS one that
asks the worker to stop could be lost.
"""


class StopNow(BaseException):
    """Raised inside a handler in the main thread: the worker does not wait for it any longer."""


class GivenUp(BaseException):
    """Raised inside a handler in the main thread that was told to end and went on."""


class Shutdown:
    """Whether to stop, and until when what runs may go on. Any thread and any signal may ask."""

    def __init__(self, drain_timeout: float) -> None:
        self.drain_timeout = check_seconds("drain_timeout", drain_timeout)
        self.deadline: float | None = None
        """Of ``time.monotonic()``; None while the worker is not asked to stop."""
        self.reason: BaseException | None = None
        """What ``run`` raises in the end: a KeyboardInterrupt that a handler raised."""
        self.signal: signal.Signals | None = None
        """The one that asked, if one did."""
        self._listener: Callable[[], object] | None = None

    @property
    def asked(self) -> bool:
        return self.deadline is not None

    def is_over(self) -> bool:
        """Whether what still runs is to be given back."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def left(self) -> float:
        """Seconds until that."""
        assert self.deadline is not None
        return max(0.0, self.deadline - time.monotonic())

    def ask(self) -> None:
        """Start nothing new, and let what runs end in its time."""
        if self.deadline is None:
            self.deadline = time.monotonic() + self.drain_timeout
        self._tell()

    def at_once(self, reason: BaseException | None = None) -> None:
        """Wait for nothing."""
        self.reason = self.reason or reason
        self.deadline = 0.0
        self._tell()

    def listen(self, listener: Callable[[], object]) -> None:
        self._listener = listener
        if self.asked:
            listener()

    def _tell(self) -> None:
        if self._listener is not None:
            self._listener()


class Signals:
    """SIGTERM and SIGINT ask a worker to stop, the second one at once.

    Only in the main thread, which gets its old handlers back. A handler that runs there is ended
    by StopNow when there is nothing left to wait for.
    """

    def __init__(self, shutdown: Shutdown) -> None:
        self._shutdown = shutdown
        self._main = threading.main_thread().ident
        self._may_poke = False
        self._is_inside: Callable[[], bool] = lambda: False
        self._is_stuck: Callable[[], bool] = lambda: False

    def interrupt_if(self, is_inside: Callable[[], bool], is_stuck: Callable[[], bool]) -> None:
        """The main thread may be interrupted while it is inside; it is while it is stuck."""
        self._is_inside = is_inside
        self._is_stuck = is_stuck

    @contextlib.contextmanager
    def installed(self, numbers: Sequence[signal.Signals] = (*SIGNALS, POKE)) -> Iterator[None]:
        """Without POKE among the numbers, nothing in the main thread is interrupted from others."""
        before: dict[int, Any] = {}
        try:
            for number in numbers:
                hear = self._hear_poke if number == POKE else self._hear
                before[number] = signal.signal(number, hear)
            self._may_poke = POKE in before
            yield
        finally:
            self._may_poke = False
            for known, handler in before.items():
                # None: what was there before was not made by Python and cannot be put back.
                signal.signal(known, signal.SIG_DFL if handler is None else handler)

    def poke(self) -> None:
        """From another thread: there is nothing left to wait for, or the handler does not end.

        Nothing unless installed.
        """
        if self._may_poke and self._main is not None:
            signal.pthread_kill(self._main, POKE)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self._shutdown.asked:
            self._shutdown.at_once()
        else:
            # Not logged here: a signal comes in the middle of anything, of logging as well.
            self._shutdown.signal = signal.Signals(number)
            self._shutdown.ask()
        self._stop_if_over()

    def _hear_poke(self, _number: int, frame: FrameType | None) -> None:
        self._stop_if_over()
        # A signal that is just being heard would be lost with what is raised; the next poke comes.
        if self._is_stuck() and not _is_within(frame, Signals._hear.__code__):
            raise GivenUp

    def _stop_if_over(self) -> None:
        if self._shutdown.is_over() and self._is_inside():
            raise StopNow


def _is_within(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def may_handle_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


def unclaimed_signals() -> list[signal.Signals]:
    """Those of SIGTERM and SIGINT that do what they do in any program, and in asyncio.run()."""
    return [number for number in SIGNALS if _is_default(signal.getsignal(number))]


def _is_default(handler: Any) -> bool:
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    # asyncio.run() cancels its main task with SIGINT.
    function = handler.func if isinstance(handler, functools.partial) else handler
    return isinstance(getattr(function, "__self__", None), asyncio.Runner)
