"""From a helper thread back to the event loop: answers that can be awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Mailbox:
    """The answers for one event loop; those that come together wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[Pending[Any], Any, BaseException | None]] = deque()
        self._told = False

    def put(self, pending: Pending[Any], answer: Any, error: BaseException | None) -> None:
        """From any thread; ``tell`` has to follow."""
        self._arrived.append((pending, answer, error))

    def tell(self) -> None:
        """Let the loop hand out what has arrived."""
        if self._told or not self._arrived:
            return
        self._told = True
        try:
            self.loop.call_soon_threadsafe(self._hand_out)
        except RuntimeError:
            # The loop was closed, and nobody waits there any more.
            self._told = False
            while self._arrived:
                pending, answer, error = self._arrived.popleft()
                pending.lose(answer, error)

    def _hand_out(self) -> None:
        # Before the first is taken: whoever comes after the last one has to tell again.
        self._told = False
        while self._arrived:
            pending, answer, error = self._arrived.popleft()
            pending.resolve(answer, error)


class Mailboxes:
    """The mailbox of the loop that is running; a store may be used by several."""

    def __init__(self) -> None:
        self._last: Mailbox | None = None

    def current(self) -> Mailbox:
        loop = asyncio.get_running_loop()
        box = self._last
        if box is None or box.loop is not loop:
            box = self._last = Mailbox(loop)
        return box


class Pending(Generic[R]):
    """A call that a helper thread was given, awaited by one task.

    When the task is cancelled before the call was taken, it never is. When it was taken it runs to
    its end, and ``undo`` is given the answer that nobody will see.
    """

    __slots__ = ("_future", "_mailbox", "_undo")

    def __init__(self, mailbox: Mailbox, undo: Callable[[R], object] | None = None) -> None:
        self._mailbox = mailbox
        self._undo = undo
        self._future: asyncio.Future[R] = mailbox.loop.create_future()

    # --- in the helper thread -----------------------------------------------------------------
    def taken(self) -> bool:
        return not self._future.cancelled()

    def finished(self, call: Any) -> None:
        """``call`` has an ``answer``, or an ``error``."""
        error = call.error
        self._mailbox.put(self, None if error is not None else call.answer, error)

    def tell(self) -> None:
        self._mailbox.tell()

    # --- on the loop --------------------------------------------------------------------------
    def __await__(self) -> Generator[Any, None, R]:
        try:
            return (yield from self._future)
        except BaseException:
            self._abandon()
            raise

    def resolve(self, answer: R, error: BaseException | None) -> None:
        future = self._future
        if future.cancelled():
            self.lose(answer, error)
        elif future.done():
            # Who was interrupted as it told us told us again.
            return
        elif error is None:
            future.set_result(answer)
        elif isinstance(error, StopIteration):
            # What a future does not take, since it would end the one who awaits it.
            future.set_exception(RuntimeError(f"the call raised {error!r}"))
        else:
            future.set_exception(error)

    def lose(self, answer: R, error: BaseException | None) -> None:
        """Nobody will see this answer."""
        if error is None and self._undo is not None:
            self._undo(answer)

    def _abandon(self) -> None:
        """The task goes on without an answer. One that comes later finds the future cancelled."""
        future = self._future
        if not future.done():
            # The coroutine was closed instead of cancelled; its loop may be gone.
            with contextlib.suppress(RuntimeError):
                future.cancel()
        elif not future.cancelled() and future.exception() is None:
            # The answer was there, but the task was cancelled before it could look.
            self.lose(future.result(), None)


def set_from_any_thread(future: asyncio.Future[R], value: R) -> None:
    """Give the future its result, on its own loop; nothing if it has one already."""
    # A loop that was closed has nobody left to tell.
    with contextlib.suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_set, future, value)


def _set(future: asyncio.Future[R], value: R) -> None:
    if not future.done():
        future.set_result(value)
