"""One who waits at FIFOs: opened first, drained, then the probe, then sleep."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from localqueue.errors import LocalQueueError
from localqueue.stores.protocol import Waiter
from localqueue.stores.sqlite.wakeups.protocol import LONGEST_WAIT, Questions, Watched, What
from localqueue.stores.sqlite.wakeups.read_end import CLOSED, Bell, End, NewsEnd, ReadEnd

if TYPE_CHECKING:
    from localqueue.stores.sqlite.wakeups.fifo_wakeups import FifoWakeups


class FifoWaiter:
    """Drained before the probe: what the tokens told of, the probe sees.

    Drained after it, a token would be lost whose message came in between. OSError when a FIFO
    cannot be opened.
    """

    def __init__(
        self, wakeups: FifoWakeups, queues: Sequence[str], what: What, ask: Questions
    ) -> None:
        # Until all is open there is nothing to give up.
        self._closed = True
        self._wakeups = wakeups
        self._queues = queues
        self._what: What = what
        self._ask = ask
        self._watched = Watched(queues, ask)
        self._ends: dict[int, ReadEnd] = {}
        self._news: NewsEnd | None = None
        self._took: set[int] = set()
        """Queues whose tokens it took, perhaps from others."""
        self._substitute: Waiter | None = None
        self._bell: Bell | None = None
        try:
            self._open_all()
        except BaseException:
            self._release_all()
            raise
        self._closed = False

    def wait(self, timeout: float) -> bool:
        if self._recovers():
            return True
        if self._substitute is not None:
            return self._substitute.wait(timeout)
        deadline = time.monotonic() + min(timeout, LONGEST_WAIT)
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            heard = [fd for fd, _ in self._poll.poll(remaining * 1000)]
            if not heard:
                return self._open_again_elsewhere()
            if self._is_told(heard):
                return True

    async def wait_async(self, timeout: float) -> bool:
        if self._recovers():
            return True
        if self._substitute is not None:
            return await self._substitute.wait_async(timeout)
        from localqueue.stores.sqlite.wakeups.sleeping_task import TaskAtFifos

        sleeper = TaskAtFifos(self._took)
        if not self._wakeups.add_task(sleeper.wake_from_any_thread):
            return True
        with contextlib.ExitStack() as until_awake:
            until_awake.callback(self._wakeups.remove_task, sleeper.wake_from_any_thread)
            for end in self._ends.values():
                end.line_up(sleeper.loop, sleeper)
                until_awake.callback(end.step_out, sleeper.loop, sleeper)
            if self._news is not None:
                sleeper.loop.add_reader(self._news.fd, sleeper.hear_news)
                until_awake.callback(sleeper.loop.remove_reader, self._news.fd)
            told = await sleeper.sleep(min(timeout, LONGEST_WAIT))
        if not told:
            return self._open_again_elsewhere()
        if sleeper.heard_news:
            await self._hear_news_async()
        return True

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._release_all()
        if self._substitute is not None:
            self._substitute.close()
        owed = [number for number in self._took if self._wakeups.is_watched(self._what, number)]
        if owed and not self._tell_next_from_loop(owed):
            self._tell_next(owed)

    def __del__(self) -> None:
        if not self._closed:
            for end in self._all_ends():
                self._wakeups.abandon(end)

    # --- hearing ------------------------------------------------------------------------------
    def _is_told(self, heard: Iterable[int]) -> bool:
        """Take one token at most: the others are for others."""
        for fd in heard:
            end = self._by_fd[fd]
            if end is self._news:
                self._hear_news()
            if not isinstance(end, ReadEnd):
                return True
            if end.take():
                self._took.add(end.key[1])
                return True
        return False

    def _hear_news(self) -> None:
        with self._or_poll():
            self._renew_news()
            self._watched.look()
            self._open_queues()

    async def _hear_news_async(self) -> None:
        """The same; the store is asked in a thread, since the loop reads no database."""
        from localqueue.stores.sqlite.wakeups.sleeping_task import in_a_thread

        with self._or_poll():
            self._renew_news()
            self._watched.add(await in_a_thread(self._watched.ask))
            self._open_queues()

    def _tell_next(self, numbers: Iterable[int]) -> None:
        """Pass the baton of those queues that were not emptied."""
        for number in numbers:
            try:
                left = self._ask.is_left(self._what, number)
            except LocalQueueError:
                # Who can say? One look too many is harmless.
                left = True
            if left:
                self._wakeups.tell_next(self._what, number)

    def _tell_next_from_loop(self, numbers: Iterable[int]) -> bool:
        """The same in a thread, where this one has a loop to run: asking reads the database."""
        if "asyncio" not in sys.modules:
            return False
        from localqueue.stores.sqlite.wakeups.sleeping_task import start_in_a_thread

        return start_in_a_thread(self._tell_next, numbers)

    # --- opening ------------------------------------------------------------------------------
    def _open_all(self) -> None:
        self._bell = self._wakeups.open_bell()
        if self._watched.missing:
            self._renew_news()
            # A queue that was made before that end was open has told nobody.
            self._watched.look()
        self._open_queues()

    def _renew_news(self) -> None:
        old, self._news = self._news, None
        if old is not None:
            self._wakeups.release(old)
        self._news = self._wakeups.open_news(self._what)

    def _open_queues(self) -> None:
        for number in self._watched.numbers - self._ends.keys():
            end = self._ends[number] = self._wakeups.open(self._what, number)
            if end.drain():
                self._took.add(number)
        if not self._watched.missing and self._news is not None:
            news, self._news = self._news, None
            self._wakeups.release(news)
        self._by_fd = {one.fd: one for one in self._all_ends()}
        self._poll = select.poll()
        for fd in self._by_fd:
            self._poll.register(fd, select.POLLIN)

    def _open_again_elsewhere(self) -> bool:
        """Nobody told in time. If a file was removed or replaced, nobody could."""
        files: list[ReadEnd | NewsEnd] = list(self._ends.values())
        if self._news is not None:
            files.append(self._news)
        if all(end.is_in_place() for end in files):
            return False
        self._start_again()
        return True

    def _recovers(self) -> bool:
        """After a fork nothing is open; and what could not be opened before may be there again.

        True when it did: it was drained then, so the probe comes first.
        """
        if self._closed or (self._bell is not None and self._bell.fd != CLOSED):
            return self._closed
        self._start_again()
        return self._substitute is None

    def _start_again(self) -> None:
        self._release_all()
        self._substitute = None
        with self._or_poll():
            self._open_all()

    @contextlib.contextmanager
    def _or_poll(self) -> Iterator[None]:
        """Where a FIFO cannot be opened any more, go on without."""
        try:
            yield
        except OSError:
            self._release_all()
            self._substitute = self._wakeups.poll(self._queues, self._what, self._ask)

    def _all_ends(self) -> list[End]:
        ends: list[End | None] = [self._bell, self._news, *self._ends.values()]
        return [end for end in ends if end is not None]

    def _release_all(self) -> None:
        ends = self._all_ends()
        self._bell = self._news = None
        self._ends.clear()
        for end in ends:
            self._wakeups.release(end)
