"""Waking inside one process by a condition; where others cannot be heard, also by looking often."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from localqueue.stores.sqlite.view import NEW_QUEUES
from localqueue.stores.sqlite.wakeups.protocol import LONGEST_WAIT, Questions, Watched, What

Key = tuple[str, int]


class ConditionWakeups:
    """Counts what was told per queue, so that a waiter sees what came between probe and sleep.

    Everybody who waits for a queue is woken, so nobody has to tell the next one. With ``poll``
    a waiter comes back that often at least: for stores that other processes write unheard.
    """

    def __init__(self, *, poll: float | None = None) -> None:
        self.poll = poll
        self._told: defaultdict[Key, int] = defaultdict(int)
        self._tasks: set[Callable[[], None]] = set()
        self._closed = False
        self._forking = False
        self._condition = threading.Condition()

    def tell(
        self, ready: AbstractSet[int], room: AbstractSet[int], *, waited_for: bool = True
    ) -> None:
        keys: list[Key] = [("ready", queue) for queue in ready]
        keys += [("room", queue) for queue in room]
        if keys:
            with self._condition:
                for key in keys:
                    self._told[key] += 1
                self._wake_all()

    def watch(self, queues: Sequence[str], what: What, ask: Questions) -> ConditionWaiter:
        new = self.seen([(what, NEW_QUEUES)])
        return ConditionWaiter(self, Watched(queues, ask), what, new)

    def seen(self, keys: Sequence[Key]) -> int:
        """How often these were told of."""
        with self._condition:
            return sum(self._told[key] for key in keys)

    def wait(self, keys: Sequence[Key], seen: int, timeout: float) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self._is_told(keys, seen), timeout)

    async def wait_async(self, keys: Sequence[Key], seen: int, timeout: float) -> bool:
        from localqueue.stores.sqlite.wakeups.sleeping_task import SleepingTask

        task = SleepingTask()
        with self._condition:
            if self._is_told(keys, seen):
                return True
            self._tasks.add(task.wake_from_any_thread)
        deadline = task.loop.time() + timeout
        try:
            while await task.sleep(max(0.0, deadline - task.loop.time())):
                if self.wait(keys, seen, 0.0):
                    return True
                # Somebody else's queue.
                task.sleep_again()
        finally:
            with self._condition:
                self._tasks.discard(task.wake_from_any_thread)
        return self.wait(keys, seen, 0.0)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._wake_all()

    def before_fork(self) -> None:
        self._condition.acquire()
        self._forking = True

    def after_fork(self, *, in_child: bool) -> None:
        forking, self._forking = self._forking, False
        if in_child:
            # Another thread of the parent may have held it, and no other waiter came along.
            self._condition = threading.Condition()
            self._tasks.clear()
        elif forking:
            self._condition.release()

    def _is_told(self, keys: Sequence[Key], seen: int) -> bool:
        return self._closed or sum(self._told[key] for key in keys) != seen

    def _wake_all(self) -> None:
        self._condition.notify_all()
        for wake in self._tasks:
            wake()


class ConditionWaiter:
    """Waits for some queues of a ConditionWakeups."""

    def __init__(self, wakeups: ConditionWakeups, watched: Watched, what: What, new: int) -> None:
        self._wakeups = wakeups
        self._watched = watched
        self._what: What = what
        self._remember(new)

    def wait(self, timeout: float) -> bool:
        told = self._wakeups.wait(self._keys, self._seen, self._pause(timeout))
        if told:
            self._look_again()
        return told or self._is_early(timeout)

    async def wait_async(self, timeout: float) -> bool:
        from localqueue.stores.sqlite.wakeups.sleeping_task import in_a_thread

        told = await self._wakeups.wait_async(self._keys, self._seen, self._pause(timeout))
        if told and self._watched.missing:
            await in_a_thread(self._look_again)
        elif told:
            self._look_again()
        return told or self._is_early(timeout)

    def close(self) -> None:
        return

    def _pause(self, timeout: float) -> float:
        poll = self._wakeups.poll
        return min(timeout, LONGEST_WAIT if poll is None else poll)

    def _is_early(self, timeout: float) -> bool:
        """Nobody told, but nobody could: the caller has to look."""
        return self._wakeups.poll is not None and self._wakeups.poll < timeout

    def _look_again(self) -> None:
        # Counted before the look: a queue that is made in between is told of once more.
        new = self._wakeups.seen([(self._what, NEW_QUEUES)])
        self._watched.look()
        self._remember(new)

    def _remember(self, new: int) -> None:
        """What was told until now the next probe will see; ``new`` of NEW_QUEUES."""
        self._keys: list[Key] = [(self._what, number) for number in self._watched.numbers]
        self._seen = self._wakeups.seen(self._keys)
        if self._watched.missing:
            self._keys.append((self._what, NEW_QUEUES))
            self._seen += new
