"""Worker: runs a handler for every message of its queues, and loses none."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self, get_args

from localqueue.checks import check_count, check_key, check_seconds
from localqueue.errors import ConfigurationError, InvalidArgument, WrongType
from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from localqueue.resilience.circuit_breaker import Breaker, CircuitBreaker
from localqueue.resilience.rate_limiter import Limiter, RateLimit
from localqueue.rule import DEFAULT_BACKOFF, DEFAULT_TRIES, Backoff, FailurePolicy
from localqueue.stores.threaded import awaitable_twin
from localqueue.workers.aio import TaskCrew, TaskDriver
from localqueue.workers.bell import LoopBell, ThreadBell
from localqueue.workers.context import Slot
from localqueue.workers.driver import Direct, Driver, Hands, Later
from localqueue.workers.execution import Execution
from localqueue.workers.foreman import Foreman
from localqueue.workers.heartbeat import Heartbeat
from localqueue.workers.inline import InlineDriver, InlineRunner, Pile, Steward
from localqueue.workers.liveness import Liveness
from localqueue.workers.pace import Pace
from localqueue.workers.prefetch import Prefetch
from localqueue.workers.process import ProcessHands, check_process_handler
from localqueue.workers.returned import refuse_generator_function
from localqueue.workers.shift import Shift
from localqueue.workers.shutdown import (
    SIGNALS,
    Shutdown,
    Signals,
    may_handle_signals,
    unclaimed_signals,
)
from localqueue.workers.source import Sources, check_queues
from localqueue.workers.summary import Summary
from localqueue.workers.thread import InThread, Lobby, ThreadCrew, ThreadDriver
from localqueue.workers.timeouts import Timeouts

Kind = Literal["thread", "asyncio", "process"]
DRAIN_TIMEOUT = 30.0


class Worker:
    """Leases messages of one queue or several, calls ``handler`` with each value, and settles.

    A handler that returns has its message acknowledged; one that raises has it delivered again
    later, or made a dead letter after ``max_tries``. Leases are extended while handlers run. What
    the process leaves when it dies comes back.
    """

    def __init__(
        self,
        queues: PersistentQueue[Any] | Iterable[PersistentQueue[Any]],
        handler: Callable[[Any], Any],
        *,
        kind: Kind | None = None,
        concurrency: int = 1,
        prefetch: int | None = None,
        timeout: float | None = None,
        max_tries: int | None = None,
        backoff: Backoff | float | None = None,
        dead_letter_on_failure: bool | None = None,
        release_delay: float | None = None,
        min_interval: float | None = None,
        rate_limit: RateLimit | Limiter | None = None,
        circuit_breaker: CircuitBreaker | Breaker | None = None,
        worker_id: str | None = None,
        drain_timeout: float = DRAIN_TIMEOUT,
        on_progress: Callable[[QueueMessage[Any], str], object] | None = None,
        max_tasks_per_child: int | None = None,
    ) -> None:
        """Options that are not given come from the queue: from its spec or its retry defaults.

        ``kind`` is "asyncio" for coroutine functions and "thread" for others unless given.
        ``prefetch`` is how many messages may be leased ahead at most, ``timeout`` how many seconds
        a handler may run, ``max_tries=0`` means for ever. With ``kind="process"`` the handler must
        be importable by its name, and a process is replaced after ``max_tasks_per_child`` messages.
        """
        self.queues = check_queues(queues)
        if not callable(handler):
            raise WrongType(f"handler must be callable, not {type(handler).__name__}")
        refuse_generator_function(handler)
        self.handler = handler
        self.kind: Kind = _check_kind(kind, handler)
        self.concurrency = check_count("concurrency", concurrency, least=1)
        self.prefetch = None if prefetch is None else check_count("prefetch", prefetch)
        self.timeout = None if timeout is None else check_seconds("timeout", timeout, zero=False)
        self.worker_id = None if worker_id is None else check_key("worker_id", worker_id)
        self.drain_timeout = check_seconds("drain_timeout", drain_timeout)
        self.on_progress = on_progress
        self.max_tasks_per_child = _most_tasks(max_tasks_per_child, self.kind)
        self._reference = check_process_handler(handler) if self.kind == "process" else None
        configs = [queue.build_worker_config() for queue in self.queues]
        self._policies = [
            FailurePolicy(
                _tries(max_tries, queue),
                _backoff(backoff),
                _first(dead_letter_on_failure, config.dead_letter_on_failure),
                _first(release_delay, config.release_delay),
            )
            for queue, config in zip(self.queues, configs, strict=True)
        ]
        interval = max(config.min_interval for config in configs)
        self._pace = Pace(
            check_seconds("min_interval", _first(min_interval, interval)),
            _limiter(rate_limit),
            _breaker(circuit_breaker, configs),
        )
        self._lock = threading.Lock()
        self._shutdown: Shutdown | None = None
        """Of the shift that runs."""
        self._shift: Shift | None = None
        self._in_background = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def summary(self) -> Summary:
        """What was done so far, in the run that is going on or in the last one."""
        return Summary() if self._shift is None else self._shift.summary()

    @property
    def is_behind(self) -> bool:
        """Whether it runs, and has leased messages that no handler has begun or that wait to be
        settled."""
        shift = self._shift
        return shift is not None and self._shutdown is not None and shift.is_behind()

    def run(self, until_empty: bool = False, handle_signals: bool | None = None) -> Summary:
        """Work until ``stop()`` is called; what was done.

        With ``until_empty`` it also returns when its queues have nothing left for it: nothing
        ready, delayed or held behind its key, and nothing that it holds itself. What others hold is
        not waited for. ``handle_signals`` makes SIGTERM and SIGINT stop it (a second one at once),
        and is the default in the main thread.
        """
        if handle_signals is None:
            handle_signals = may_handle_signals()
        elif handle_signals:
            _check_main_thread()
        return self._run(self._begin(), until_empty, handle_signals)

    async def run_async(
        self, until_empty: bool = False, handle_signals: bool | None = None
    ) -> Summary:
        """The same on the running event loop, for ``kind="asyncio"``.

        In the main thread SIGTERM and SIGINT stop it as they stop ``run``, each unless the program
        has a handler for it; ``handle_signals=True`` takes both, False leaves both alone. When the
        task is cancelled, what runs is cancelled and given back.
        """
        if self.kind != "asyncio":
            raise ConfigurationError(f'run_async() is for kind="asyncio", not {self.kind!r}')
        heard = _signals_to_hear(handle_signals)
        shutdown = self._begin()
        try:
            shift, signals = self._new_shift(shutdown, until_empty), Signals(shutdown)
            with contextlib.ExitStack() as until_over:
                until_over.enter_context(signals.installed(heard))
                sources = await asyncio.to_thread(self._open)
                driver = self._make_driver(shift, sources, signals, until_over)
                assert isinstance(driver, TaskDriver)
                await driver.run_async()
            return shift.summary()
        finally:
            self._end()

    def stop(self, now: bool = False) -> None:
        """Ask it to stop: nothing is started any more, what was leased ahead is given back.

        What runs may end within ``drain_timeout`` and is given back then; with ``now`` at once. It
        returns immediately, from any thread or signal handler; ``run`` returns when all is settled.
        A store that takes nothing is asked for some seconds more, and what stays unsettled is
        delivered again, uncharged.
        """
        shutdown = self._shutdown
        if shutdown is None:
            return
        if now:
            shutdown.at_once()
        else:
            shutdown.ask()

    def start(self, until_empty: bool = False) -> Self:
        """Run in a thread of its own; ``join()`` waits for its end. ``with`` does all of it.

        Handlers run in other threads: one that does not end in its time is left behind.
        """
        shutdown = self._begin(in_background=True)

        def run() -> None:
            try:
                self._run(shutdown, until_empty, False)
            except BaseException as error:
                self._error = error

        self._error = None
        self._thread = threading.Thread(target=run, name="localqueue-worker", daemon=True)
        self._thread.start()
        return self

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the run that ``start`` began is over; what it raised is raised here.

        False when it is not over after ``timeout`` seconds.
        """
        thread = self._thread
        if thread is None:
            return True
        thread.join(timeout)
        if thread.is_alive():
            return False
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return True

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    def __repr__(self) -> str:
        names = ", ".join(queue.name for queue in self.queues)
        return f"Worker({names}, kind={self.kind!r}, concurrency={self.concurrency})"

    # --- one shift ------------------------------------------------------------------------------
    def _begin(self, *, in_background: bool = False) -> Shutdown:
        with self._lock:
            if self._shutdown is not None:
                raise ConfigurationError("this worker runs already; make another one")
            self._in_background = in_background
            self._shutdown = Shutdown(self.drain_timeout)
            return self._shutdown

    def _end(self) -> None:
        self._shutdown = None

    def _run(self, shutdown: Shutdown, until_empty: bool, handle_signals: bool) -> Summary:
        try:
            shift, signals = self._new_shift(shutdown, until_empty), Signals(shutdown)
            with contextlib.ExitStack() as until_over:
                if handle_signals:
                    until_over.enter_context(signals.installed())
                driver = self._make_driver(shift, self._open(), signals, until_over)
                driver.run()
            return shift.summary()
        finally:
            self._end()

    def _open(self) -> Sources:
        return Sources(self.queues, self._policies, self.worker_id)

    def _new_shift(self, shutdown: Shutdown, until_empty: bool) -> Shift:
        slots = [Slot(number, self.on_progress) for number in range(self.concurrency)]
        bell = ThreadBell() if self._is_inline() else LoopBell()
        self._shift = Shift(slots, shutdown, bell, until_empty=until_empty)
        shutdown.listen(self._shift.bell.ring)
        return self._shift

    def _make_driver(
        self, shift: Shift, sources: Sources, signals: Signals, until_over: contextlib.ExitStack
    ) -> Driver:
        liveness = Liveness(sources.store.run_folder, slots=self.concurrency)
        # What nobody could settle is given back by whoever finds the sign.
        until_over.callback(lambda: liveness.close(keep=shift.leaves_leases))
        execution = Execution(shift, sources, self._pace)
        crew = self._make_crew(shift, sources, execution, liveness, until_over)
        timeouts = Timeouts(shift, execution, liveness, self.timeout)
        foreman = Foreman(
            shift,
            sources,
            crew,
            Later(awaitable_twin(sources.store))
            if self.kind == "asyncio"
            else Direct(sources.store),
            pace=self._pace,
            prefetch=Prefetch(self.concurrency, sources.lease_timeout, self.prefetch),
            liveness=liveness.name,
            timeouts=timeouts,
            overdue=signals.poke,
        )
        holding = foreman.holding

        def look() -> None:
            holding.take_back_if_stuck()
            if self.kind == "asyncio":
                timeouts.give_up_if_stuck(holding.settle_at_once)

        until_over.enter_context(
            Heartbeat(
                sources.store,
                sources.when,
                liveness,
                sources.lease_timeout,
                held=holding.leases,
                on_answer=holding.answered,
                timeout_of=holding.lease_timeout,
                look=look,
            )
        )
        if isinstance(crew, TaskCrew):
            on_loop = TaskDriver(shift, crew, foreman)
            timeouts.replace = on_loop.replace
            return on_loop
        if isinstance(crew, Lobby):
            in_threads = ThreadDriver(shift, crew, foreman)
            # A process is ended from outside, and so is a job of Spark.
            if isinstance(crew, ThreadCrew) and self.kind == "thread":
                timeouts.replace = in_threads.replace
            return in_threads
        if self.kind == "thread":
            runs = shift.slots[0]
            signals.interrupt_if(lambda: runs.inside, runs.is_stuck)
            timeouts.interrupt = signals.poke
        steward = Steward(foreman)
        hands = self._hands(shift, until_over)
        runner = InlineRunner(shift, execution, liveness, hands, foreman, steward)
        return InlineDriver(shift, runner, foreman, steward)

    def _make_crew(
        self,
        shift: Shift,
        sources: Sources,
        execution: Execution,
        liveness: Liveness,
        until_over: contextlib.ExitStack,
    ) -> TaskCrew | Lobby | Pile:
        """Who runs the handlers."""
        if self.kind == "asyncio":
            return TaskCrew(shift, execution, liveness, self.handler, self.timeout)
        if self._is_inline():
            return Pile(shift)
        return ThreadCrew(shift, execution, liveness, self._hands(shift, until_over))

    def _is_inline(self) -> bool:
        """Whether the thread that runs the worker does everything."""
        if self.kind == "asyncio" or self.concurrency > 1:
            return False
        # Who joins that thread must not wait for a handler that does not end. A process can be
        # ended; a thread of its own for the handler is left behind.
        return self.kind == "process" or not self._in_background

    def _hands(self, shift: Shift, until_over: contextlib.ExitStack) -> Hands:
        """What calls the handler for each runner."""
        if self._reference is not None:
            hands = ProcessHands(self._reference, shift.shutdown.is_over, self.max_tasks_per_child)
            until_over.callback(hands.close)
            return hands
        hand = InThread(self.handler)
        return lambda slot: hand


def _check_main_thread() -> None:
    if not may_handle_signals():
        raise ConfigurationError("signals can be handled in the main thread only")


def _signals_to_hear(handle_signals: bool | None) -> Sequence[signal.Signals]:
    """On a loop that belongs to others: what they have claimed stays theirs, unless it is given."""
    if handle_signals:
        _check_main_thread()
        return SIGNALS
    if handle_signals is None and may_handle_signals():
        return unclaimed_signals()
    return ()


def _check_kind(kind: Any, handler: Callable[..., Any]) -> Kind:
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - whether calling it makes a coroutine
    )
    if kind is None:
        return "asyncio" if is_async else "thread"
    if kind not in get_args(Kind):
        raise InvalidArgument(f'kind must be "thread", "asyncio" or "process", not {kind!r}')
    if (kind == "asyncio") != is_async:
        raise ConfigurationError(
            'kind="asyncio" needs a handler that is a coroutine function'
            if kind == "asyncio"
            else f'a handler that is a coroutine function needs kind="asyncio", not {kind!r}'
        )
    checked: Kind = kind
    return checked


def _most_tasks(given: int | None, kind: Kind) -> int | None:
    if given is None:
        return None
    if kind != "process":
        raise ConfigurationError(f'max_tasks_per_child is for kind="process", not {kind!r}')
    return check_count("max_tasks_per_child", given, least=1)


def _tries(given: int | None, queue: PersistentQueue[Any]) -> int | None:
    if given is None:
        tries: int = queue.retry_defaults.get("max_tries") or DEFAULT_TRIES
        return tries
    return check_count("max_tries", given) or None


def _backoff(given: Backoff | float | None) -> Backoff:
    if given is None:
        return DEFAULT_BACKOFF
    if isinstance(given, Backoff):
        return given
    seconds = check_seconds("backoff", given)
    return Backoff(seconds, seconds, 1.0, 0.0)


def _limiter(given: RateLimit | Limiter | None) -> Limiter | None:
    if isinstance(given, RateLimit):
        return given.limiter()
    if given is None or _has_all(given, "delay", "available", "try_acquire"):
        return given
    raise WrongType(
        f"rate_limit must be a RateLimit, such as RateLimit(5, per=1.0), not {_what(given)}"
    )


def _breaker(given: CircuitBreaker | Breaker | None, configs: Sequence[Any]) -> Breaker | None:
    if isinstance(given, CircuitBreaker):
        return given.circuit()
    if given is not None:
        if _has_all(given, "delay", "allow", "succeeded", "failed", "abandoned"):
            return given
        raise WrongType(
            "circuit_breaker must be a CircuitBreaker, such as"
            f" CircuitBreaker(failures=5, cooldown=30.0), not {_what(given)}"
        )
    for config in configs:
        if config.circuit_breaker_failures:
            breaker = CircuitBreaker(
                config.circuit_breaker_failures, config.circuit_breaker_cooldown
            )
            return breaker.circuit()
    return None


def _has_all(given: Any, *methods: str) -> bool:
    return not isinstance(given, type) and all(
        callable(getattr(given, method, None)) for method in methods
    )


def _what(given: Any) -> str:
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__


def _first(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given
