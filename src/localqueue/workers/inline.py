"""One handler at a time, in the thread that called ``run``; the foreman's work is done in between.

Nothing is handed from thread to thread, which is what makes this the fastest way. While a handler
takes long a second thread, the steward, does what cannot wait for its end.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import Any, Self

from localqueue.calls.face import finish
from localqueue.errors import StoreError
from localqueue.message import QueueMessage
from localqueue.workers.context import Slot
from localqueue.workers.driver import Hands
from localqueue.workers.execution import Execution
from localqueue.workers.foreman import TICK, Foreman
from localqueue.workers.liveness import Liveness
from localqueue.workers.shift import Shift
from localqueue.workers.shutdown import StopNow
from localqueue.workers.thread import Runner

log = logging.getLogger("localqueue.workers")


class Pile:
    """A crew of one: what is given to it lies there until the runner is done with its foreman."""

    def __init__(self, shift: Shift) -> None:
        self._shift = shift

    def give(self, messages: Sequence[QueueMessage[Any]]) -> None:
        self._shift.pending.extend(messages)

    def dismiss(self) -> None:
        """The runner knows: it asked."""


class InlineRunner(Runner):
    """Its own foreman, whenever there is nothing to run."""

    def __init__(
        self,
        shift: Shift,
        execution: Execution,
        liveness: Liveness,
        hands: Hands,
        foreman: Foreman,
        steward: Steward,
    ) -> None:
        super().__init__(shift, execution, liveness, hands)
        self._foreman = foreman
        self._steward = steward

    def _waits_for_more(self, slot: Slot) -> bool:
        foreman, pending = self._foreman, self._shift.pending
        self._steward.rest()
        with self._steward.desk:
            slot.sleep()
            self._liveness.end(slot.number)
            while not pending:
                if finish(foreman.is_over()):
                    return False
                if not pending:
                    finish(foreman.rest())
            slot.wake()
        self._steward.watch()
        return True


class Steward:
    """Watches over a handler that takes long, in a thread of its own.

    ``desk`` is held by whoever does the foreman's work.
    """

    def __init__(self, foreman: Foreman) -> None:
        self.desk = threading.Lock()
        self._foreman = foreman
        self._working = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="localqueue-steward", daemon=True)

    def watch(self) -> None:
        """Handlers begin."""
        self._working.set()

    def rest(self) -> None:
        """The runner does the foreman's work itself."""
        self._working.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._working.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(TICK):
            self._working.wait()
            if self._foreman.is_wanted():
                self._look_after()

    def _look_after(self) -> None:
        with self.desk:
            # The runner may have been faster, and then everything is done.
            if not self._foreman.is_wanted() or self._ended.is_set():
                return
            try:
                finish(self._foreman.is_over())
            except Exception as error:
                # The runner meets the same when its handler has ended, and raises it.
                log.warning("nothing can be settled while a handler runs: %s", error)


class InlineDriver:
    """The calling thread does everything, but for heartbeats and the steward's work."""

    def __init__(
        self, shift: Shift, runner: InlineRunner, foreman: Foreman, steward: Steward
    ) -> None:
        self._shift = shift
        self._runner = runner
        self._foreman = foreman
        self._steward = steward

    def run(self) -> None:
        shutdown = self._shift.shutdown
        try:
            with self._steward:
                self._runner.work(self._shift.slots[0])
        except BaseException as error:
            if not isinstance(error, StopNow):
                shutdown.at_once(error)
                # An interrupt may have come between a lease and its being known.
                finish(self._end(is_sure=False))
                raise
            shutdown.at_once()
        finish(self._end(is_sure=True))
        if shutdown.reason is not None:
            raise shutdown.reason

    async def _end(self, *, is_sure: bool) -> None:
        await self._foreman.end()
        if not is_sure:
            with contextlib.suppress(StoreError):
                await self._foreman.release_everything()
