"""Handlers as coroutines, on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from localqueue.errors import ConfigurationError, LocalQueueError
from localqueue.message import QueueMessage
from localqueue.workers.context import Slot, nothing_runs
from localqueue.workers.duties import handler_timeout
from localqueue.workers.execution import INTERRUPTS, Execution
from localqueue.workers.foreman import Foreman
from localqueue.workers.liveness import Liveness
from localqueue.workers.returned import refuse_undone
from localqueue.workers.shift import Shift
from localqueue.workers.source import Source

log = logging.getLogger("localqueue.workers")

LATE = 0.1
"""A handler that nobody stopped for so long did not let the foreman have the loop."""
FAREWELL = 0.25
"""How long a handler that was given up is waited for when its worker ends."""
SLICE = 0.005
"""Handlers that never wait let others have the loop this often."""


class TaskCrew:
    """Runners that take what is pending, each a task.

    A handler is awaited by its runner: a task of its own for each message would take as long as
    everything else together.
    """

    def __init__(
        self,
        shift: Shift,
        execution: Execution,
        liveness: Liveness,
        handler: Callable[[Any], Awaitable[Any]],
        timeout: float | None = None,
    ) -> None:
        self._shift = shift
        self._execution = execution
        self._liveness = liveness
        self._handler = handler
        self._timeout = timeout
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._dismissed = False

    def give(self, messages: Sequence[QueueMessage[Any]]) -> None:
        self._shift.pending.extend(messages)
        self._wake(len(messages))

    def dismiss(self) -> None:
        self._dismissed = True
        self._wake(len(self._waiting))

    def _wake(self, most: int) -> None:
        while self._waiting and most > 0:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                most -= 1

    async def work(self, slot: Slot) -> None:
        """Run one message after the other, until there is no more work."""
        cancelling = slot.interrupt = _Cancelling(slot)
        try:
            await self._work(slot, cancelling)
        except Exception as error:
            # None of the handler's, which are all caught: the worker cannot go on.
            self._shift.shutdown.at_once(error)
        finally:
            slot.rest()
            if not slot.is_left:
                self._liveness.end(slot.number)
            nothing_runs()

    async def _work(self, slot: Slot, cancelling: _Cancelling) -> None:
        execution, call, number = self._execution, self._handler, slot.number
        take, done = self._shift.pending.popleft, self._shift.acks.append
        begin, simple = self._liveness.begin, False
        shutdown, timeout = self._shift.shutdown, self._timeout
        sliced = time.monotonic()
        while True:
            try:
                message = take()
            except IndexError:
                if await self._waits_for_more(slot):
                    sliced, simple = time.monotonic(), execution.is_simple()
                    continue
                return
            if shutdown.deadline is not None and execution.turns_away(message):
                continue
            slot.begin(message)
            begin(number, message.id)
            try:
                if simple:
                    slot.inside = True
                    result = await call(message.value)
                    if result is not None:
                        refuse_undone(result)
                else:
                    source = execution.source(message)
                    if source.commit is not None and not await self._begins(message, source):
                        continue
                    # What was told while the commit began has interrupted nothing.
                    if slot.current is not None:
                        slot.current.check()
                    slot.inside = True
                    with execution.around(source, message):
                        result = await call(message.value)
                        if result is not None:
                            refuse_undone(result)
                slot.inside = False
                if timeout is not None:
                    self._check_time(slot, message, timeout)
            except BaseException as error:
                slot.inside = False
                if cancelling.is_from_outside(error):
                    raise
                if timeout is not None:
                    self._check_time(slot, message, timeout)
                if slot.ends(message):
                    await self._failed(slot, message, error)
                elif slot.is_left:
                    return
                elif isinstance(error, INTERRUPTS):
                    shutdown.at_once(error)
                continue
            finally:
                cancelling.forget()
            if simple and slot.current is None:
                done(message)
            elif not slot.ends(message):
                if slot.is_left:
                    return
            elif execution.source(message).commit is None:
                execution.success(slot, message, result)
            else:
                await asyncio.to_thread(execution.success, slot, message, result)
            if slot.began - sliced > SLICE:
                await asyncio.sleep(0)
                sliced = time.monotonic()

    def _check_time(self, slot: Slot, message: QueueMessage[Any], timeout: float) -> None:
        """A handler that blocks the loop also blocks the foreman, who should have told it."""
        took = time.monotonic() - slot.began
        told = slot.told(message)
        if took < timeout or (told is not None and told.cancelled):
            return
        slot.tell(message, handler_timeout(timeout))
        if took >= timeout + LATE:
            log.warning(
                "message %s of %r: its handler ran %.1f s without letting go of the event loop, so"
                " that nothing could end it after %g s; await what blocks, with asyncio.to_thread,"
                ' or use kind="thread"',
                message.id, message.queue, took, timeout,
            )  # fmt: skip

    async def _begins(self, message: QueueMessage[Any], source: Source) -> bool:
        commit = source.commit
        assert commit is not None
        return await asyncio.to_thread(self._execution.begin, message, commit)

    async def _failed(self, slot: Slot, message: QueueMessage[Any], error: BaseException) -> None:
        if isinstance(error, INTERRUPTS):
            self._shift.shutdown.at_once(error)
        if self._execution.source(message).commit is None:
            self._execution.failure(slot, message, error)
        else:
            await asyncio.to_thread(self._execution.failure, slot, message, error)

    async def _waits_for_more(self, slot: Slot) -> bool:
        """False when there will be none."""
        slot.sleep()
        self._liveness.end(slot.number)
        self._shift.bell.ring()
        try:
            while not self._shift.pending and not self._dismissed:
                more: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(more)
                await more
            return bool(self._shift.pending)
        finally:
            slot.wake()


class _Cancelling:
    """Ends a handler that awaits something; of its own cancellations the task knows nothing after.

    In the task of the runner. The foreman calls it on the same loop, while the handler waits.
    """

    def __init__(self, slot: Slot) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._slot = slot
        self._asked = False

    def __call__(self, _error: LocalQueueError) -> None:
        if self._slot.inside:
            self._asked = True
            self._task.cancel()

    def forget(self) -> None:
        """The handler has ended, because of that or not."""
        if self._asked:
            self._asked = False
            self._task.uncancel()

    def is_from_outside(self, error: BaseException) -> bool:
        """Whether somebody cancels the runner itself, and not only the handler."""
        asked = 1 if self._asked else 0
        return isinstance(error, asyncio.CancelledError) and self._task.cancelling() > asked


class TaskDriver:
    """The foreman and the runners are tasks of one loop: of its own, or of the caller's."""

    def __init__(self, shift: Shift, crew: TaskCrew, foreman: Foreman) -> None:
        self._shift = shift
        self._crew = crew
        self._foreman = foreman
        self._runners: dict[Slot, asyncio.Task[None]] = {}
        """Those that have not ended."""

    def run(self) -> None:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ConfigurationError(
                "an event loop is running here already: await worker.run_async() instead"
            )
        asyncio.run(self.run_async())

    async def run_async(self) -> None:
        for slot in list(self._shift.slots):
            self._start(slot)
        try:
            await self._foreman.run()
        finally:
            await self._end_runners()
        if self._shift.shutdown.reason is not None:
            raise self._shift.shutdown.reason

    def replace(self, slot: Slot) -> None:
        """Leave the runner of this slot to its handler, and start another. For the foreman."""
        successor = self._shift.leave(slot)
        if successor is None:
            return
        self._start(successor)
        # Once more, or for the first time: what blocked the loop could not be cancelled before.
        self._runners[slot].cancel()

    def _start(self, slot: Slot) -> None:
        runner = self._runners[slot] = asyncio.ensure_future(self._crew.work(slot))
        runner.add_done_callback(lambda _: self._runners.pop(slot))

    async def _end_runners(self) -> None:
        """What was given back is not waited for, but it is not left running either."""
        runners = self._runners.copy()
        for runner in runners.values():
            runner.cancel()
        stuck = [runner for slot, runner in runners.items() if slot.is_left or slot.is_stuck()]
        others = [runner for runner in runners.values() if runner not in stuck]
        await asyncio.gather(*others, return_exceptions=True)
        if stuck:
            _, still = await asyncio.wait(stuck, timeout=FAREWELL)
            for runner in still:
                _forget(runner)


def _forget(task: asyncio.Task[None]) -> None:
    """Whoever ends the loop waits for all tasks, and this one swallows its cancellation."""
    # As asyncio's page on extending it says, for tasks that are about to finish.
    asyncio.tasks._unregister_task(task)
    # Known from asyncio.gather(): nobody has to be told of this one.
    vars_of: Any = task
    vars_of._log_destroy_pending = False
