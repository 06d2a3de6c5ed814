"""One listener of a queue: called with every event, and never in the way of anybody."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from localqueue.errors import WrongType

if TYPE_CHECKING:
    from localqueue.telemetry.events import Event

Listener = Callable[["Event"], object]
"""Called with one event after the other, from any thread; what it returns is ignored."""


class OnceLogged:
    """Logs the first error of somebody whose errors must not reach the queue's callers."""

    def __init__(self, who: object) -> None:
        self._who = who
        self._done = False

    def __call__(self, error: BaseException) -> None:
        if self._done:
            return
        self._done = True
        import logging

        try:
            logging.getLogger("localqueue.telemetry").error(
                "%r failed; further errors of it are not logged", self._who, exc_info=error
            )
        except Exception:
            # A log that fails is no reason either.
            pass


class Subscription:
    """A listener and its manners.

    Its errors are logged once. What its own calls of the queue cause is told to the others only, so
    that a listener which puts a message does not hear of that for ever.
    """

    def __init__(self, listener: Listener) -> None:
        self.listener = check_listener(listener)
        self._log = OnceLogged(listener)
        # Of the thread, not a set of threads: in a forked child nobody else is running.
        self._thread = threading.local()

    def tell(self, events: Sequence[Event]) -> None:
        if getattr(self._thread, "inside", False):
            return
        self._thread.inside = True
        try:
            for event in events:
                try:
                    self.listener(event)
                except BaseException as error:
                    if is_meant_for_the_program(error):
                        raise
                    self._log(error)
        finally:
            self._thread.inside = False


def is_meant_for_the_program(error: BaseException) -> bool:
    """Whether this may be a signal's, which came while the listener ran.

    Python runs signal handlers in the main thread: Ctrl-C there is a KeyboardInterrupt, and a
    program that exits on SIGTERM raises SystemExit. Swallowed, the program would not end. In other
    threads such an exception is the listener's own, and ends nothing.
    """
    if isinstance(error, Exception):
        return False
    return threading.current_thread() is threading.main_thread()


def check_listener(listener: Any) -> Listener:
    if not callable(listener):
        raise WrongType(f"a listener must be callable, not {type(listener).__name__}")
    call = listener if inspect.isroutine(listener) else type(listener).__call__
    if inspect.iscoroutinefunction(call):
        raise WrongType(
            f"a listener is called and not awaited: {listener!r} is a coroutine function"
        )
    checked: Listener = listener
    return checked
