"""What Tenacity's callbacks are told: a call that goes on where earlier ones ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from tenacity import BaseRetrying, RetryCallState

from localqueue.retry.record import RetryRecord


class PersistentCallState(RetryCallState):
    """Counts recorded attempts too; ``start_time`` is when the first of them began.

    Both times are seconds of ``time.time()``, so that ``seconds_since_start`` spans restarts. While
    the call runs they follow the monotonic clock: setting the wall clock changes no wait.
    """

    def __init__(
        self,
        retry_object: BaseRetrying,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        record: RetryRecord | None,
    ) -> None:
        super().__init__(retry_object, fn, args, kwargs)
        self.gave_up = False
        """The stop has said that it was the last attempt."""
        self._began = time.monotonic()
        self._began_wall = time.time()
        if record is None:
            self.start_time = self._began_wall
        else:
            self.start_time = record.first_attempt_at
            self.attempt_number = record.attempts + 1
            # Set back since then: no time has passed, rather than less than none.
            self._began_wall = max(self._began_wall, record.first_attempt_at)

    def set_result(self, val: Any) -> None:
        super().set_result(val)
        self.outcome_timestamp = self._now()

    def set_exception(
        self, exc_info: tuple[type[BaseException], BaseException, TracebackType | None]
    ) -> None:
        super().set_exception(exc_info)
        self.outcome_timestamp = self._now()

    @contextlib.contextmanager
    def as_if_crashed(self, attempts: int) -> Iterator[None]:
        """The state after an attempt that nobody lived to judge."""
        upcoming, self.attempt_number = self.attempt_number, attempts
        error = RuntimeError("the process ended during the attempt")
        self.set_exception((RuntimeError, error, None))
        yield
        self.outcome, self.outcome_timestamp = None, None
        self.attempt_number = upcoming

    def _now(self) -> float:
        return self._began_wall + (time.monotonic() - self._began)
