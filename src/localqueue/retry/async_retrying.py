"""The same for coroutine functions: waiting is awaited, and the store is asked in threads."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from tenacity import AsyncRetrying, DoAttempt, DoSleep, RetryCallState

from localqueue.retry.attempts import Attempts
from localqueue.retry.call_state import PersistentCallState
from localqueue.retry.functions import check_is_no_generator_function
from localqueue.retry.keyed import F, KeyedRetry
from localqueue.retry.record import RetryRecord
from localqueue.retry.recording import RecordingRetry

R = TypeVar("R")


class PersistentAsyncRetrying(KeyedRetry):
    """PersistentRetrying for coroutine functions, with the same options.

    Callbacks and strategies may be coroutine functions where Tenacity takes them. The store is
    called in helper threads: the event loop never waits for a file.
    """

    async def __call__(self, fn: Callable[..., Awaitable[R]], /, *args: Any, **kwargs: Any) -> R:
        """Call the function until it succeeds or the retry gives up."""
        return cast("R", await self._run({}, fn, args, kwargs))

    def wraps(self, fn: F) -> F:
        """The function, retried, with ``retry``, ``retry_with(**changes)`` and ``statistics``."""
        check_is_no_generator_function(fn, who="a persistent retry")
        self._options.check(fn)

        @functools.wraps(fn)
        async def retried(*args: Any, **kwargs: Any) -> Any:
            return await self._run(offers.statistics, fn, args, kwargs)

        offers = self._offers(retried, fn)
        return cast("F", retried)

    async def _run(
        self,
        statistics: dict[str, Any],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        statistics.clear()
        self._local.statistics = statistics
        options = self._options
        if not options.enabled:
            return await _outcome(fn, args, kwargs)
        attempts = options.attempts(fn, args, kwargs)
        record = await asyncio.to_thread(attempts.open) if attempts.reads_block else attempts.open()
        retrying = _AsyncRetrying(attempts, statistics, options.tenacity)
        state = PersistentCallState(retrying, fn, args, kwargs, record)
        if attempts.count_crashes and record is not None:
            await self._check_budget(attempts, state, record)
        retrying.begin()
        statistics["attempt_number"] = state.attempt_number
        try:
            result = await retrying.until_done(state)
        except GeneratorExit:
            attempts.left()  # the coroutine is closed: nothing can be awaited any more
            raise
        except BaseException:
            if attempts.count_crashes:
                await asyncio.to_thread(attempts.left)
            raise
        if not state.gave_up:
            if attempts.reads_block or attempts.count_crashes:
                await asyncio.to_thread(attempts.succeeded)
            else:
                attempts.succeeded()
        return result

    async def _check_budget(
        self, attempts: Attempts, state: PersistentCallState, record: RetryRecord
    ) -> None:
        """Attempts that nobody lived to judge may have spent it."""
        with state.as_if_crashed(record.attempts):
            spent = await _outcome(self._options.tenacity["stop"], (state,), {})
        if spent:
            await asyncio.to_thread(attempts.give_up)
            raise attempts.exhausted()


class _AsyncRetrying(RecordingRetry, AsyncRetrying):
    """One call's Tenacity."""

    async def until_done(self, state: PersistentCallState) -> Any:
        """Tenacity's own loop, with a state that counts recorded attempts."""
        while True:
            do = await self.iter(retry_state=state)
            if isinstance(do, DoAttempt):
                if self._attempts.count_crashes:
                    await asyncio.to_thread(self._attempts.begin, state.start_time)
                try:
                    assert state.fn is not None
                    result = await _outcome(state.fn, state.args, state.kwargs)
                except BaseException:
                    state.set_exception(sys.exc_info())  # type: ignore[arg-type]
                else:
                    state.set_result(result)
            elif isinstance(do, DoSleep):
                state.prepare_for_next_attempt()
                await _outcome(self.sleep, (do,), {})
            else:
                return do

    async def _record_and_stop(self, state: RetryCallState) -> bool:
        assert isinstance(state, PersistentCallState)
        attempts = self._attempts
        while True:
            state.attempt_number = attempts.number(state.start_time)
            state.gave_up = bool(await _outcome(self._may_stop, (state,), {}))
            if await asyncio.to_thread(attempts.failed, state.start_time, exhausted=state.gave_up):
                return state.gave_up


async def _outcome(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function returns, awaited if that is how it is got."""
    result = fn(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result
