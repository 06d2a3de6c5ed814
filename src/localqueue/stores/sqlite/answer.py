"""The answer to a call that no thread waits for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from localqueue.stores.sqlite.group_commit import Call

R = TypeVar("R")


class Answer(Future[R]):
    """A future that takes its call back when it is cancelled.

    A call that nobody works on yet is withdrawn; one that is worked on runs to its end, and what it
    leased is released. Cancelling is allowed even when the answer is there: then it was not seen.
    """

    def __init__(self, abandoned: Callable[[Call[Any]], None]) -> None:
        super().__init__()
        self._abandoned = abandoned
        self.call: Call[R] | None = None

    def taken(self) -> bool:
        return self.set_running_or_notify_cancel()

    def finished(self, call: Call[Any]) -> None:
        if call.error is not None:
            self.set_exception(call.error)
        else:
            self.set_result(call.answer)
        if call.gone:
            self._abandoned(call)

    def tell(self) -> None:
        """Told already: a thread that waits for a future is woken by its result."""

    def cancel(self) -> bool:
        if super().cancel():
            return True
        call = self.call
        if call is not None and not call.gone:
            call.gone = True
            if call.finished:
                self._abandoned(call)
        return False


class Nobody:
    """Listens to calls that nobody asked for."""

    def taken(self) -> bool:
        return True

    def finished(self, call: Call[Any]) -> None: ...

    def tell(self) -> None: ...
