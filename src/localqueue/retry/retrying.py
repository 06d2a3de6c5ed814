"""Retry a function under a key, across calls, processes and restarts."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tenacity import DoAttempt, DoSleep, RetryCallState, Retrying

from localqueue.retry.attempts import Attempts
from localqueue.retry.call_state import PersistentCallState
from localqueue.retry.functions import check_is_done_when_it_returns
from localqueue.retry.keyed import F, KeyedRetry
from localqueue.retry.record import RetryRecord
from localqueue.retry.recording import RecordingRetry

R = TypeVar("R")


class PersistentRetrying(KeyedRetry):
    """Tenacity's ``Retrying`` whose attempts are recorded under a key.

    A call goes on counting where earlier calls under its key ended, in this process or another.
    When they spent the budget it raises PersistentRetryExhausted, and the function is not called.
    Options: ``store`` or ``store_path``, ``key`` or ``key_fn``, ``clear_on_success``, ``max_tries``
    or ``stop``, ``count_crashes``, and those of Tenacity. Without a stop it retries for ever.

    With ``count_crashes`` an attempt is recorded before it begins, so that one during which the
    process dies counts too, and the budget is checked before the first attempt of a call as well.
    """

    def __call__(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Call the function until it succeeds or the retry gives up."""
        _check_can_be_retried(fn)
        return cast("R", self._run({}, fn, args, kwargs))

    def wraps(self, fn: F) -> F:
        """The function, retried, with ``retry``, ``retry_with(**changes)`` and ``statistics``."""
        _check_can_be_retried(fn)
        self._options.check(fn)

        @functools.wraps(fn)
        def retried(*args: Any, **kwargs: Any) -> Any:
            return self._run(offers.statistics, fn, args, kwargs)

        offers = self._offers(retried, fn)
        return cast("F", retried)

    def _run(
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
            return fn(*args, **kwargs)
        attempts = options.attempts(fn, args, kwargs)
        record = attempts.open()
        retrying = _Retrying(attempts, statistics, options.tenacity)
        state = PersistentCallState(retrying, fn, args, kwargs, record)
        if attempts.count_crashes and record is not None:
            self._check_budget(attempts, state, record)
        retrying.begin()
        statistics["attempt_number"] = state.attempt_number
        try:
            result = retrying.until_done(state)
        except BaseException:
            attempts.left()
            raise
        if not state.gave_up:
            attempts.succeeded()
        return result

    def _check_budget(
        self, attempts: Attempts, state: PersistentCallState, record: RetryRecord
    ) -> None:
        """Attempts that nobody lived to judge may have spent it."""
        with state.as_if_crashed(record.attempts):
            spent = self._options.tenacity["stop"](state)
        if spent:
            attempts.give_up()
            raise attempts.exhausted()


def _check_can_be_retried(fn: Callable[..., Any]) -> None:
    check_is_done_when_it_returns(
        fn, who="a persistent retry", instead="persistent_async_retry or PersistentAsyncRetrying"
    )


class _Retrying(RecordingRetry, Retrying):
    """One call's Tenacity."""

    def until_done(self, state: PersistentCallState) -> Any:
        """Tenacity's own loop, with a state that counts recorded attempts."""
        while True:
            do = self.iter(retry_state=state)
            if isinstance(do, DoAttempt):
                self._attempts.begin(state.start_time)
                try:
                    assert state.fn is not None
                    result = state.fn(*state.args, **state.kwargs)
                except BaseException:
                    state.set_exception(sys.exc_info())  # type: ignore[arg-type]
                else:
                    state.set_result(result)
            elif isinstance(do, DoSleep):
                state.prepare_for_next_attempt()
                self.sleep(do)
            else:
                return do

    def _record_and_stop(self, state: RetryCallState) -> bool:
        assert isinstance(state, PersistentCallState)
        while True:
            state.attempt_number = self._attempts.number(state.start_time)
            state.gave_up = bool(self._may_stop(state))
            if self._attempts.failed(state.start_time, exhausted=state.gave_up):
                return state.gave_up
