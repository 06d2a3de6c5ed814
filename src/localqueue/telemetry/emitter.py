"""Tells listeners what a queue object does; without one that costs a look at an attribute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from localqueue.errors import ConfigurationError, WrongType
from localqueue.message import QueueMessage
from localqueue.telemetry.handling import Handling
from localqueue.telemetry.subscription import Listener, OnceLogged, Subscription

if TYPE_CHECKING:
    from localqueue.telemetry.announcer import Announcer
    from localqueue.telemetry.events import Event
    from localqueue.telemetry.tracing import Trace, Tracing


class Emitter:
    """``queue.telemetry``: who listens to this queue object, and what traces it.

    Listeners are called one after the other in the thread that made the call, on the event loop for
    ``queue.aio``, after the store has answered; they should be quick. They may use the queue.
    """

    def __init__(
        self, queue: str, moment: Callable[[], float], listeners: Iterable[Listener] = ()
    ) -> None:
        self.queue = queue
        self.moment = moment
        """Now, on the clock by which messages show their times."""
        self.announce: Announcer | None = None
        """Makes events and tells them. None while nobody listens: look before every use."""
        self.tracing: Tracing | None = None
        self.active = False
        """Whether there is a listener or a trace: only then ``handling`` is worth its while."""
        self._subscriptions: tuple[Subscription, ...] = ()
        self._when_traced: list[Callable[[], None]] = []
        self.renew_locks()
        try:
            given = tuple(listeners)
        except TypeError:
            raise WrongType("listeners must be an iterable of callables") from None
        for listener in given:
            self.listen(listener)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return tuple(subscription.listener for subscription in self._subscriptions)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call this with every event from now on; returns how to stop that, which is idempotent.

        A call that is running in another thread is not waited for.
        """
        subscription = Subscription(listener)

        def stop() -> None:
            with self._lock:
                left = tuple(one for one in self._subscriptions if one is not subscription)
                self._settle(left)

        with self._lock:
            self._settle((*self._subscriptions, subscription))
        return stop

    def emit(self, events: Sequence[Event]) -> None:
        """Tell all listeners. What one raises never keeps the others from being told."""
        passing: BaseException | None = None
        for subscription in self._subscriptions:
            try:
                subscription.tell(events)
            except BaseException as error:
                passing = passing or error
        if passing is not None:
            raise passing

    def handling(
        self, message: QueueMessage[Any], worker: str | None = None
    ) -> AbstractContextManager[None]:
        """Around a handler, in its thread or task: it started, it ended, and its span.

        What the handler raises passes through. ``worker`` is the name in the lease unless given.
        """
        return Handling(self, message, message.leased_by if worker is None else worker)

    def handled(self, message: QueueMessage[Any], took: float, error: BaseException | None) -> None:
        """A handler ran where nobody could listen: it started and ended, told together.

        Its span has the time of the telling.
        """
        handling = Handling(self, message, message.leased_by, took)
        handling.__enter__()
        handling.__exit__(None if error is None else type(error), error, None)

    def trace(self, tracing: Tracing) -> Callable[[], None]:
        """Surround puts and handlers with traces from now on; returns how to stop that."""
        with self._lock:
            if self.tracing is not None:
                raise ConfigurationError(
                    f"queue {self.queue!r} is traced already; stop that before you trace it anew"
                )
            self._settle_tracing(tracing)

        def stop() -> None:
            with self._lock:
                if self.tracing is tracing:
                    self._settle_tracing(None)

        return stop

    def when_traced(self, changed: Callable[[], None]) -> None:
        """Call this whenever ``tracing`` was set or taken away."""
        self._when_traced.append(changed)

    def begun(self, begin: Callable[[Tracing], Trace]) -> Trace | None:
        """A trace that begins, if there is any tracing and it can."""
        tracing = self.tracing
        if tracing is None:
            return None
        try:
            return begin(tracing)
        except Exception as error:
            self._log_tracing(error)
            return None

    def ended(
        self, trace: Trace | None, message: QueueMessage[Any] | None, error: BaseException | None
    ) -> None:
        if trace is None:
            return
        try:
            trace.end(message, error)
        except Exception as broken:
            self._log_tracing(broken)

    def renew_locks(self) -> None:
        """In a forked child: whoever held them did not come along."""
        self._lock = threading.Lock()

    def _settle(self, subscriptions: tuple[Subscription, ...]) -> None:
        # The events are loaded with the first listener: their classes cost as much as the queue.
        from localqueue.telemetry.announcer import Announcer

        self._subscriptions = subscriptions
        self.announce = Announcer(self) if subscriptions else None
        self.active = bool(subscriptions) or self.tracing is not None

    def _settle_tracing(self, tracing: Tracing | None) -> None:
        self._log_tracing = OnceLogged(tracing)
        self.tracing = tracing
        self.active = bool(self._subscriptions) or tracing is not None
        for changed in self._when_traced:
            changed()
