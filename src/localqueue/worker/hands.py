"""Two ways to run a handler: in the caller's thread, or as a part of the caller's task."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from tenacity import RetryCallState, Retrying, stop_after_attempt, stop_never

from localqueue.calls.attachment import Attachment
from localqueue.calls.awaiting import Awaiting
from localqueue.calls.face import Blocking, Face
from localqueue.message import QueueMessage
from localqueue.outcome import Reject, Retry, Snooze, describe_error
from localqueue.retry import PersistentAsyncRetrying, PersistentRetrying
from localqueue.retry.call_state import PersistentCallState
from localqueue.retry.record import RetryRecord
from localqueue.rule import FailurePolicy
from localqueue.telemetry.emitter import Emitter
from localqueue.worker.finished import finished
from localqueue.worker.pace import Start
from localqueue.worker.to_the_end import ToTheEnd
from localqueue.worker.tries import Tries
from localqueue.workers.context import CurrentMessage, Slot
from localqueue.workers.shutdown import StopNow

log = logging.getLogger("localqueue.worker")

LONGEST_TEXT = 500
"""Of an error in the log: one line."""

R = TypeVar("R")
Stop = Callable[[RetryCallState], Any]


class Ended(NamedTuple):
    """How a call ended: what it returned, or what it raises."""

    result: Any = None
    error: BaseException | None = None


class Job(NamedTuple):
    """A handler, and what it is called with."""

    handler: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Running(NamedTuple):
    """One delivery while its handler runs."""

    message: QueueMessage[Any]
    slot: Slot
    tries: Tries
    start: Start
    emitter: Emitter
    policy: FailurePolicy

    def told(self) -> CurrentMessage | None:
        """What the handler was told from outside, if it is to end."""
        current = self.slot.told(self.message)
        return current if current is not None and current.cancelled else None

    def check(self) -> None:
        """Raise what the handler was told: another try would be in vain."""
        current = self.told()
        if current is not None:
            current.check()

    def may_retry(self, error: BaseException) -> bool:
        """Whether it is for the retry's own rule to decide about another try."""
        if isinstance(error, (KeyboardInterrupt, StopNow, Reject, Snooze)):
            return False
        if isinstance(error, Retry) and error.after is not None:
            return False
        return self.told() is None

    def is_worth_a_retry(self, error: BaseException) -> bool:
        """The rule of those who give none: SystemExit is a failure like others."""
        return not self.policy.is_permanent(error)

    def tell_of_another_try(self, state: RetryCallState) -> None:
        """A try failed that is followed by another one: the log and those who listen hear of it."""
        # Not the error itself: to print it may fail, or take many lines.
        error = describe_error(_error_of(state))
        reason = (
            "the result was not accepted" if error is None
            else " ".join(f"{error['type']}: {error['message']}".split())
        )  # fmt: skip
        log.warning(
            "message %s of %r: try %d failed, the next one is in %.3g s: %s",
            self.message.id,
            self.message.queue,
            state.attempt_number,
            state.upcoming_sleep,
            reason[:LONGEST_TEXT],
        )
        announce = self.emitter.announce
        if announce is not None:
            announce.tried(self.message, state.upcoming_sleep, error)

    def counted(self, error: BaseException | None, again: bool) -> bool:
        """Whether the try that ended so is followed by another: ``again``, for the account."""
        self.tries.uncounted = error is not None and not again
        if again:
            self.tries.last_error = error
        return again


class Hand(Protocol):
    """How the steps of a call that differ are done."""

    face: Face

    async def sleep(self, seconds: float) -> None: ...

    async def once(
        self, job: Job, message: QueueMessage[Any], start: Start, emitter: Emitter
    ) -> Ended:
        """Call the handler one time; what it raises is not raised."""

    async def tries(self, job: Job, running: Running) -> Ended:
        """Call the handler until it succeeds, or until it is not to be tried again."""

    async def is_spent(self, job: Job, running: Running, error: BaseException) -> bool:
        """Whether this error, which ended the tries, is the last for which there is a budget."""

    async def to_the_end(self, steps: Coroutine[Any, Any, R]) -> R:
        """What these steps come to. Who is interrupted meanwhile hears of it when they are done."""

    def is_closing(self, error: BaseException) -> bool:
        """Whether nothing can be awaited any more."""

    def is_interrupted(self, error: BaseException) -> bool:
        """Whether the caller was interrupted, and not only the handler."""

    def later(self, function: Callable[[], object]) -> None:
        """Do something that may block and that nobody waits for."""


class BlockingHand:
    """The caller's thread does everything."""

    def __init__(self, attachment: Attachment, retry: dict[str, Any]) -> None:
        self.face: Face = Blocking(attachment)
        self._retrying = PersistentRetrying(**retry)
        self._stop = _stop_of(retry)
        self._own_rule: Callable[[RetryCallState], Any] | None = retry.get("retry")
        self._sleeps = retry.get("sleep") is not None
        self._before_sleep: Callable[[RetryCallState], Any] | None = retry.get("before_sleep")

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # this is no event loop

    async def once(
        self, job: Job, message: QueueMessage[Any], start: Start, emitter: Emitter
    ) -> Ended:
        try:
            with _surrounding(emitter, message):
                start.now()
                return Ended(finished(job.handler(message.value, *job.args, **job.kwargs)))
        except BaseException as error:
            return Ended(error=error)

    async def tries(self, job: Job, running: Running) -> Ended:
        @functools.wraps(job.handler)
        def one_try(*args: Any, **kwargs: Any) -> Any:
            running.check()
            with _surrounding(running.emitter, running.message):
                running.start.now()
                return finished(job.handler(*args, **kwargs))

        def decide(state: RetryCallState) -> bool:
            error = _error_of(state)
            if error is not None and not running.may_retry(error):
                again = False
            elif self._own_rule is not None:
                again = bool(self._own_rule(state))
            else:
                again = error is not None and running.is_worth_a_retry(error)
            return running.counted(error, again)

        def before_sleep(state: RetryCallState) -> None:
            running.tell_of_another_try(state)
            if self._before_sleep is not None:
                self._before_sleep(state)

        def sleep(seconds: float) -> None:
            running.slot.current_of(running.message).wait(seconds)

        changes: dict[str, Any] = {} if self._sleeps else {"sleep": sleep}
        retrying = self._retrying.copy(
            store=running.tries,
            key=running.message.id,
            retry=decide,
            before_sleep=before_sleep,
            **changes,
        )
        try:
            return Ended(retrying(one_try, running.message.value, *job.args, **job.kwargs))
        except BaseException as error:
            return Ended(error=error)

    async def is_spent(self, job: Job, running: Running, error: BaseException) -> bool:
        return bool(self._stop(_after(job, running, error)))

    async def to_the_end(self, steps: Coroutine[Any, Any, R]) -> R:
        return await steps

    def is_closing(self, error: BaseException) -> bool:
        return False

    def is_interrupted(self, error: BaseException) -> bool:
        return isinstance(error, (KeyboardInterrupt, StopNow))

    def later(self, function: Callable[[], object]) -> None:
        function()


class AwaitingHand:
    """The caller's task does everything; what blocks is done in helper threads."""

    def __init__(self, attachment: Attachment, retry: dict[str, Any]) -> None:
        self.face: Face = Awaiting(attachment)
        self._retrying = PersistentAsyncRetrying(**retry)
        self._stop = _stop_of(retry)
        self._own_rule: Callable[[RetryCallState], Any] | None = retry.get("retry")
        self._sleeps = retry.get("sleep") is not None
        self._before_sleep: Callable[[RetryCallState], Any] | None = retry.get("before_sleep")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def once(
        self, job: Job, message: QueueMessage[Any], start: Start, emitter: Emitter
    ) -> Ended:
        try:
            with _surrounding(emitter, message):
                start.now()
                result = await _awaited(job.handler(message.value, *job.args, **job.kwargs))
                return Ended(finished(result))
        except GeneratorExit:
            raise
        except BaseException as error:
            return Ended(error=error)

    async def tries(self, job: Job, running: Running) -> Ended:
        @functools.wraps(job.handler)
        async def one_try(*args: Any, **kwargs: Any) -> Any:
            running.check()
            with _surrounding(running.emitter, running.message):
                running.start.now()
                return finished(await _awaited(job.handler(*args, **kwargs)))

        async def decide(state: RetryCallState) -> bool:
            error = _error_of(state)
            if error is not None and (
                self.is_interrupted(error)
                or isinstance(error, GeneratorExit)
                or not running.may_retry(error)
            ):
                again = False
            elif self._own_rule is not None:
                again = bool(await _awaited(self._own_rule(state)))
            else:
                again = error is not None and running.is_worth_a_retry(error)
            return running.counted(error, again)

        async def before_sleep(state: RetryCallState) -> None:
            running.tell_of_another_try(state)
            if self._before_sleep is not None:
                await _awaited(self._before_sleep(state))

        async def sleep(seconds: float) -> None:
            await _sleep_until_told(running, seconds)

        changes: dict[str, Any] = {} if self._sleeps else {"sleep": sleep}
        retrying = self._retrying.copy(
            store=running.tries,
            key=running.message.id,
            retry=decide,
            before_sleep=before_sleep,
            **changes,
        )
        try:
            return Ended(await retrying(one_try, running.message.value, *job.args, **job.kwargs))
        except GeneratorExit:
            raise  # the coroutine is closed: nothing can be awaited any more
        except BaseException as error:
            return Ended(error=error)

    async def is_spent(self, job: Job, running: Running, error: BaseException) -> bool:
        return bool(await _awaited(self._stop(_after(job, running, error))))

    async def to_the_end(self, steps: Coroutine[Any, Any, R]) -> R:
        return await ToTheEnd(steps)

    def is_closing(self, error: BaseException) -> bool:
        return isinstance(error, GeneratorExit)

    def is_interrupted(self, error: BaseException) -> bool:
        if isinstance(error, KeyboardInterrupt):
            return True
        if not isinstance(error, asyncio.CancelledError):
            return False
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    def later(self, function: Callable[[], object]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # in a thread that the handler has started
            function()
        else:
            loop.run_in_executor(None, function)


async def _sleep_until_told(running: Running, seconds: float) -> None:
    """Sleep, but not on when the handler is told to end."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    running.slot.interrupt = lambda _: loop.call_soon_threadsafe(told.set)
    try:
        if running.told() is None:
            async with asyncio.timeout(seconds):
                await told.wait()
    except TimeoutError:
        pass
    finally:
        running.slot.interrupt = None


def _stop_of(retry: dict[str, Any]) -> Stop:
    """The budget, as Tenacity has it."""
    max_tries, stop = retry.get("max_tries"), retry.get("stop")
    if stop is not None:
        return cast("Stop", stop)
    return stop_never if max_tries is None else stop_after_attempt(max_tries)


def _after(job: Job, running: Running, error: BaseException) -> RetryCallState:
    """The state of the tries after this one, of which Tenacity was not told."""
    tries, message = running.tries, running.message
    record = RetryRecord(tries.total() - 1, tries.first_attempt_at)
    args = (message.value, *job.args)
    state = PersistentCallState(Retrying(), job.handler, args, job.kwargs, record)
    state.set_exception((type(error), error, error.__traceback__))
    if isinstance(error, Retry) and error.after is not None:
        state.upcoming_sleep = error.after
    return state


def _error_of(state: RetryCallState) -> BaseException | None:
    outcome = state.outcome
    return outcome.exception() if outcome is not None and outcome.failed else None


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _surrounding(emitter: Emitter, message: QueueMessage[Any]) -> AbstractContextManager[None]:
    """For those who listen and trace."""
    return emitter.handling(message) if emitter.active else nullcontext()
