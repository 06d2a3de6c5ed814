"""Retry a function under a key, across calls, processes and restarts."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from tenacity import DoAttempt, DoSleep, RetryCallState, Retrying

from localqueue.retry.attempts import Attempts
from localqueue.retry.call_state import PersistentCallState
from localqueue.retry.options import RetryOptions
from localqueue.retry.record import RetryRecord

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Retried(Protocol):
    """What a decorated function offers beside being called."""

    retry: Any
    statistics: dict[str, Any]
    retry_with: Callable[..., Any]


class PersistentRetrying:
    """Tenacity's ``Retrying`` whose attempts are recorded under a key.

    A call goes on counting where earlier calls under its key ended, in this process or another.
    When they spent the budget it raises PersistentRetryExhausted, and the function is not called.
    Options: ``store`` or ``store_path``, ``key`` or ``key_fn``, ``clear_on_success``, ``max_tries``
    or ``stop``, ``count_crashes``, and those of Tenacity. Without a stop it retries for ever.

    With ``count_crashes`` an attempt is recorded before it begins, so that one during which the
    process dies counts too, and the budget is checked before the first attempt of a call as well.
    """

    def __init__(self, **options: Any) -> None:
        self._options = RetryOptions(**options)
        self._local = threading.local()

    @property
    def statistics(self) -> dict[str, Any]:
        """Tenacity's statistics of the latest call in this thread."""
        return cast("dict[str, Any]", self._local.__dict__.setdefault("statistics", {}))

    def get_record(self, key: str) -> RetryRecord | None:
        """What is recorded under a key, if anything."""
        return self._options.get_record(key)

    def reset(self, key: str) -> None:
        """Forget the key: its budget is whole again."""
        self._options.reset(key)

    def copy(self, **changes: Any) -> PersistentRetrying:
        """The same retry with some options changed; ``max_tries`` replaces a ``stop``."""
        copy = type(self).__new__(type(self))
        copy._options = self._options.changed(changes)
        copy._local = threading.local()
        return copy

    def __call__(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Call the function until it succeeds or the retry gives up."""
        return cast("R", self._run({}, fn, args, kwargs))

    def wraps(self, fn: F) -> F:
        """The function, retried, with ``retry``, ``retry_with(**changes)`` and ``statistics``."""

        @functools.wraps(fn)
        def retried(*args: Any, **kwargs: Any) -> Any:
            return self._run(offers.statistics, fn, args, kwargs)

        def retry_with(**changes: Any) -> F:
            return self.copy(**changes).wraps(fn)

        offers = cast("Retried", retried)
        offers.retry, offers.retry_with, offers.statistics = self, retry_with, {}
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


class _Retrying(Retrying):
    """One call's Tenacity: every failure that may be retried is recorded before the pause."""

    def __init__(
        self, attempts: Attempts, statistics: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self._attempts = attempts
        self._statistics = statistics
        self._may_stop = options["stop"]
        super().__init__(**(options | {"stop": self._record_and_stop}))

    @property
    def statistics(self) -> dict[str, Any]:
        return self._statistics

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
