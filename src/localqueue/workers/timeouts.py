"""How long handlers may run: they are told when their time is over, and given up if they go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from localqueue.errors import HandlerTimeout
from localqueue.message import QueueMessage
from localqueue.workers.context import CurrentMessage, Slot
from localqueue.workers.duties import handler_timeout
from localqueue.workers.execution import Execution
from localqueue.workers.liveness import Liveness
from localqueue.workers.shift import Ended, Shift

log = logging.getLogger("localqueue.workers")

GRACE = 2.0
"""Seconds that a handler has to end when it is told to, before it is given up."""
LEFT_PER_PLACE = 4
LEAST_LEFT = 16
"""How many handlers that were given up and still run are left behind at a time: so many for each
place of the worker, and not fewer than this. Each may hold a thread and what it works with."""

Settler = Callable[[Ended], object]


class Timeouts:
    """For the foreman, but for what the heartbeat asks.

    A delivery whose handler is given up is settled as if the handler had ended then: it has failed,
    or was cancelled. What the handler returns later is dropped.
    """

    def __init__(
        self, shift: Shift, execution: Execution, liveness: Liveness, timeout: float | None
    ) -> None:
        self._shift = shift
        self._execution = execution
        self._liveness = liveness
        self._timeout = timeout
        self._settling: list[threading.Thread] = []
        self._interrupted_at = 0.0
        self._most_left = max(LEAST_LEFT, LEFT_PER_PLACE * len(shift.slots))
        self._has_said_that_it_cannot = False
        self.replace: Callable[[Slot], str | None] | None = None
        """Leaves the runner of a handler behind, and starts another in its place; why it cannot."""
        self.interrupt: Callable[[], object] | None = None
        """Where the runner cannot be replaced: tries to end its handler.

        With neither, nothing is given up: handlers are ended from outside, and waited for.
        """

    def check(self) -> None:
        """Tell handlers that run too long; give up those that were told and go on."""
        if self._timeout is None:
            return
        now = time.monotonic()
        self._shift.forget_who_ended()
        for slot in list(self._shift.slots):
            message = slot.message
            if message is None or now - slot.began < self._timeout:
                continue
            told = slot.told(message)
            if told is None or not told.cancelled:
                if slot.message is message:
                    slot.tell(message, handler_timeout(self._timeout))
            elif now - told.told_at >= GRACE and (self.replace or self.interrupt):
                self._give_up(slot, message, told)
                self._do_without(slot, now)

    def give_up_all(self) -> bool:
        """The worker does not wait any longer: whose time was over has failed. Whether any had."""
        if self._timeout is None:
            return False
        given_up = [
            self._give_up(slot, message, told)
            for slot in self._shift.slots
            if (message := slot.message) is not None
            and (told := slot.told(message)) is not None
            and isinstance(told.reason, HandlerTimeout)
        ]
        return any(given_up)

    def is_undoing(self) -> bool:
        """Whether commits still undo something: their messages would be taken for what runs."""
        return bool(self._shift.undone)

    def wait_for_commits(self) -> None:
        """Until they have, but not for long. It blocks; in any thread."""
        deadline = time.monotonic() + GRACE
        for thread in self._settling:
            thread.join(max(0.0, deadline - time.monotonic()))

    def give_up_if_stuck(self, settle: Settler) -> None:
        """Fail what runs too long while a handler keeps the foreman from it; ``settle`` writes it.

        In the thread of the heartbeat.
        """
        now = time.monotonic()
        if self._timeout is None or now - self._shift.looked_at < GRACE:
            return
        for slot in list(self._shift.slots):
            message = slot.message
            if message is None or now - slot.began < self._timeout + GRACE:
                continue
            told = slot.current_of(message)
            # Not through the slot: a task can be cancelled on its own loop only.
            if not told.cancelled:
                told.tell(handler_timeout(self._timeout))
            self._give_up(slot, message, told, settle)

    def is_anyone_stuck(self) -> bool:
        return self._timeout is not None and any(slot.is_stuck() for slot in self._shift.slots)

    def say_who_is_left(self) -> None:
        """The worker ends, and handlers that were given up go on."""
        left = sum([slot.is_stuck() for slot in (*self._shift.left, *self._shift.slots)])
        if left:
            log.warning(
                "the worker ends and %d %s that ran too long %s on; what %s is dropped",
                left,
                *(("handlers", "go", "they do") if left > 1 else ("handler", "goes", "it does")),
            )

    def _give_up(
        self,
        slot: Slot,
        message: QueueMessage[Any],
        told: CurrentMessage,
        settle: Settler | None = None,
    ) -> bool:
        """Whether the delivery is settled here; not if the handler has ended meanwhile."""
        if not slot.give_up(message):
            return False
        log.warning(
            "message %s of %r: its handler has run for %.1f s and does not end%s; nobody waits for"
            " it any longer, and its result is dropped",
            message.id,
            message.queue,
            time.monotonic() - slot.began,
            "" if settle is None else self._how_long_nobody_looked(),
        )
        self._liveness.end(slot.number)
        fail = partial(self._fail, message, told, settle or self._shift.ended.append)
        if self._execution.source(message).commit is None:
            fail()
        else:
            # What a commit undoes may take its time.
            self._shift.undone[id(message)] = message
            thread = threading.Thread(target=fail, name="localqueue-given-up", daemon=True)
            try:
                thread.start()
                self._settling = [one for one in self._settling if one.is_alive()] + [thread]
            except RuntimeError:
                # There are no more threads: better late than never.
                fail()
        return True

    def _how_long_nobody_looked(self) -> str:
        """For the log: a handler blocks the event loop, or the worker waits for its store."""
        return (
            f", and the worker has not looked for {time.monotonic() - self._shift.looked_at:.1f} s"
        )

    def _fail(self, message: QueueMessage[Any], told: CurrentMessage, settle: Settler) -> None:
        assert told.reason is not None
        try:
            # Not what the slot was told: its runner may have begun the next by now.
            ended = self._execution.failed(told, message, told.reason)
            if ended is not None:
                settle(ended)
        finally:
            self._shift.undone.pop(id(message), None)
        self._shift.bell.ring()

    def _do_without(self, slot: Slot, now: float) -> None:
        """Another runner, or another try to end the handler, which may catch what it is told."""
        if not slot.is_stuck():
            return
        if self.replace is not None:
            self._replace(slot, self.replace)
        elif self.interrupt is not None and now - self._interrupted_at >= GRACE:
            self._interrupted_at = now
            self.interrupt()

    def _replace(self, slot: Slot, replace: Callable[[Slot], str | None]) -> None:
        """If that is possible; else the place stays taken, and the next check tries again."""
        left = len(self._shift.left)
        if left >= self._most_left:
            why_not: str | None = f"{left} handlers that were left behind still run"
        else:
            why_not = replace(slot)
        if why_not is not None and not self._has_said_that_it_cannot:
            log.error(
                "nobody takes the place of a handler that does not end (%s): the worker goes on"
                " with fewer places until that can be or the handler ends",
                why_not,
            )
        self._has_said_that_it_cannot = why_not is not None
