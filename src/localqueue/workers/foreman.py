"""Leases for the runners, hands in what they finished, and looks after what takes too long.

    wait ──▶ settle and lease in one transaction ──▶ give to the runners ──▶ they run ──▶ …

The foreman is a coroutine that speaks to the store through an ``Ask``. For one handler at a time it
never suspends, and is called like a function between two handlers (``inline.py``); for several
threads it has a loop and a thread of its own; for tasks it shares theirs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from localqueue.errors import StoreBusy, StoreError, StoreFull
from localqueue.message import QueueMessage
from localqueue.workers.aftercare import Aftercare
from localqueue.workers.driver import Ask, Crew
from localqueue.workers.duties import Duties
from localqueue.workers.holding import Holding
from localqueue.workers.lookout import LOOK_AGAIN, Lookout
from localqueue.workers.pace import Pace
from localqueue.workers.prefetch import Prefetch
from localqueue.workers.settling import LAST_PATIENCE, Settling
from localqueue.workers.shift import Shift
from localqueue.workers.source import Group, Sources
from localqueue.workers.timeouts import Timeouts

log = logging.getLogger("localqueue.workers")

TICK = 0.05
"""While something runs: how long an ended message waits for its settlement at most."""
LAST_CARE = 0.25
"""What commits have to tidy up in, when there is no time left for anything."""


class Foreman:
    """One shift of a worker, from the first look to the last settlement."""

    def __init__(
        self,
        shift: Shift,
        sources: Sources,
        crew: Crew,
        ask: Ask,
        *,
        pace: Pace,
        prefetch: Prefetch,
        liveness: str,
        timeouts: Timeouts,
        overdue: Callable[[], object],
    ) -> None:
        """``overdue`` is called when the time to drain is over and handlers still run."""
        self._shift = shift
        self._sources = sources
        self._crew = crew
        self._ask = ask
        self._pace = pace
        self._prefetch = prefetch
        self._liveness = liveness
        self._overdue = overdue
        self._timeouts = timeouts
        self._aftercare = Aftercare()
        self._settling = Settling(shift, sources, ask, self._aftercare)
        self.holding = Holding(shift, sources, ask, self._settling, self._aftercare, pace)
        self._duties = Duties(shift, sources, ask, self.holding, self._aftercare, timeouts.check)
        self._lookout = Lookout(sources, ask, shift.bell)
        self._groups = sources.groups(liveness)
        self._turns = count()
        self._has_begun = False
        self._has_said_that_it_stops = False

    async def run(self) -> None:
        """Until the worker is asked to stop and has drained, or there is nothing left."""
        try:
            while not await self.is_over():
                await self.rest()
        finally:
            await self.end()

    async def is_over(self) -> bool:
        """Do what there is to do now; whether that was all."""
        shift = self._shift
        shift.bell.reset()
        shift.looked_at = time.monotonic()
        self._start_kept()
        if not self._has_begun:
            self._has_begun = True
            await self._duties.begin()
        if not shift.shutdown.asked:
            # First: whoever put a message into an empty queue waits for its handler.
            while await self._turn() and not shift.shutdown.asked:
                shift.bell.reset()
            await self._duties.do()
        if shift.shutdown.asked:
            return await self._has_drained()
        return shift.until_empty and await self._is_empty()

    def is_wanted(self) -> bool:
        """Whether something may wait for it that should not."""
        if not self._shift.held and not self._timeouts.is_anyone_stuck():
            return False
        return time.monotonic() - self._settling.settled_at >= TICK

    async def _is_empty(self) -> bool:
        """Whether nothing is left that this worker could still get."""
        if self._shift.held or self._settling.is_anything_left():
            return False
        for name in self._sources.names:
            if await self._is_waiting(name):
                return False
        return True

    async def _is_waiting(self, name: str) -> bool:
        now = self._sources.when.now
        try:
            if not await self._ask(lambda store: store.waiting(name, now=now)):
                return False
            # A queue that is paused gives nothing, and nobody knows for how long.
            found = await self._ask(lambda store: store.settings(name))
            return found is None or not found[0].paused
        except (StoreBusy, StoreFull):
            # Nobody knows: the next look may tell.
            return True

    # --- one transaction ------------------------------------------------------------------------
    async def _turn(self) -> bool:
        """Settle what ended and lease the next, if it is time for that; whether any came."""
        now = time.monotonic()
        if now < self._settling.busy_until:
            return False
        free = self._shift.free()
        ended = self._settling.is_anything_left()
        if free > 0 and not self.holding.kept and (self._lookout.is_promising or ended):
            room = free if self._pace.is_free else self._pace.room(free)
            if room > 0:
                return await self._fetch(room)
        if ended and (free > 0 or now - self._settling.settled_at >= TICK):
            await self._settling.settle()
        return False

    async def _fetch(self, room: int) -> bool:
        """Settle and lease; from the next group of queues if there is nothing in the first."""
        turn, groups = next(self._turns), self._groups
        self._lookout.looks()
        for at in range(len(groups)):
            group = groups[(turn + at) % len(groups)]
            limit = self._limit(group, room)
            # Not the same number for both: then a group would always begin with the same queue.
            request = group.asking(turn // len(groups), limit)
            leased = await self._settling.settle_and_lease(request)
            if leased:
                messages = await self.holding.take(group, leased)
                self._give(messages, removed=group.request.remove)
                await self._lookout.found(more=len(leased) >= limit or len(groups) > 1)
                return True
        self._lookout.found_nothing()
        return False

    def _limit(self, group: Group, room: int) -> int:
        if group.request.remove or not self._pace.is_free:
            return room
        self._prefetch.measure(*self._shift.worked())
        return room + self._prefetch.ahead()

    def _give(self, messages: list[QueueMessage[Any]], *, removed: bool) -> None:
        if not self._pace.is_free:
            # Whoever shares a limit with others may be late.
            allowed = self._pace.start(len(messages))
            if removed:
                self.holding.kept += messages[allowed:]
            else:
                self.holding.give_back(messages[allowed:])
            messages = messages[:allowed]
        self._hand_out(messages, removed=removed)

    def _start_kept(self) -> None:
        """What nothing can bring back begins as soon as it may, and before it would be lost."""
        kept = self.holding.kept
        if not kept:
            return
        shutdown = self._shift.shutdown
        is_last_chance = shutdown.asked and self._pace.delay() > shutdown.left()
        allowed = len(kept) if is_last_chance else self._pace.start(len(kept))
        messages, self.holding.kept = kept[:allowed], kept[allowed:]
        if messages:
            self._hand_out(messages, removed=True)

    def _hand_out(self, messages: list[QueueMessage[Any]], *, removed: bool) -> None:
        self._shift.given_at = time.monotonic()
        self._crew.give(messages)
        if self._sources.is_anyone_listening():
            self._announce(messages, removed=removed)

    def _announce(self, messages: Sequence[QueueMessage[Any]], *, removed: bool) -> None:
        for source in self._sources:
            announce = source.emitter.announce
            if announce is not None:
                own = [message for message in messages if message.queue == source.name]
                if own:
                    announce.leased(own, removed=removed)

    # --- waiting --------------------------------------------------------------------------------
    async def rest(self) -> None:
        """Until a runner or the store has something, or time brings something to do."""
        await self._lookout.rest(self._until_next_duty(), look=self._may_fetch())

    def _may_fetch(self) -> bool:
        if self._shift.shutdown.asked or time.monotonic() < self._settling.busy_until:
            return False
        return self._shift.free() > 0 and (self._pace.is_free or self._pace.delay() <= 0)

    def _until_next_duty(self) -> float:
        seconds = TICK if self._shift.held else LOOK_AGAIN
        if self._shift.shutdown.asked:
            # When its time is over, what is left is the store's to take.
            seconds = min(TICK, self._shift.shutdown.left()) or TICK
        elif (busy := self._settling.busy_until - time.monotonic()) > 0:
            return busy
        elif not self._pace.is_free and (delay := self._pace.delay()) > 0:
            seconds = min(seconds, delay)
        return seconds

    # --- the end --------------------------------------------------------------------------------
    async def _has_drained(self) -> bool:
        """Give back what has not begun, and wait for the rest until its time is over."""
        self.holding.act_on_answers()
        self.holding.give_back_pending()
        self._say_that_it_stops()
        await self._settling.settle_if_possible(self._shift.shutdown.left())
        self._timeouts.check()
        if self._shift.held and self._shift.shutdown.is_over():
            if await self._take_back_running():
                self._overdue()
            await self._settling.settle_if_possible(LAST_PATIENCE)
            if self._settling.is_hopeless():
                return True
        return not self._shift.held

    async def _take_back_running(self) -> bool:
        """Whether anything still ran. What has run for too long has failed, and stop or not."""
        failed = self._timeouts.give_up_all()
        if self._timeouts.is_undoing():
            await self._ask.run(self._timeouts.wait_for_commits)
        return self.holding.take_back_running() or failed

    def _say_that_it_stops(self) -> None:
        """Once, when a signal asked: whoever sent it should know what is waited for, and how long.

        Nothing when nothing is.
        """
        shutdown = self._shift.shutdown
        if self._has_said_that_it_stops or shutdown.signal is None:
            return
        self._has_said_that_it_stops = True
        running = len(self._shift.held.keys() - self._settling.known())
        if running and not shutdown.is_over():
            log.warning(
                "%s: stopping, waiting up to %g s for %d %s; a second signal gives %s back now",
                shutdown.signal.name,
                shutdown.drain_timeout,
                running,
                *(("handlers", "them") if running > 1 else ("handler", "it")),
            )

    async def end(self) -> None:
        """Nothing that was leased stays so, if the store can still be told.

        What is still held then is left to others, who find the worker's sign of life.
        """
        shutdown = self._shift.shutdown
        shutdown.ask()
        self.holding.act_on_answers()
        self.holding.give_back_pending()
        if await self._take_back_running():
            self._overdue()
        self._timeouts.say_who_is_left()
        try:
            with contextlib.suppress(StoreError):
                await self._settle_the_last()
            self._shift.leaves_leases = bool(self._shift.held)
            if self._shift.held:
                log.error(
                    "the store takes nothing: %d messages stay unsettled, and are delivered again",
                    len(self._shift.held),
                )
        finally:
            self._crew.dismiss()
            await self._lookout.close()
            seconds = max(LAST_CARE, shutdown.left())
            if not await self._ask.run(lambda: self._aftercare.wait(seconds)):
                log.warning("a commit has not ended in time, and is left to its recovery")

    async def _settle_the_last(self) -> None:
        await self._hear_of_the_others()
        settling = self._settling
        while settling.is_anything_left() and not settling.is_hopeless():
            if (busy := settling.busy_until - time.monotonic()) > 0:
                self._shift.bell.reset()
                await self._shift.bell.sleep(busy, None)
            await settling.settle_if_possible()

    async def _hear_of_the_others(self) -> None:
        """What is being settled without the foreman is neither left to others nor given back."""
        deadline = time.monotonic() + LAST_PATIENCE
        self.holding.act_on_answers()
        while self.holding.is_settled_elsewhere() and time.monotonic() < deadline:
            self._shift.bell.reset()
            await self._shift.bell.sleep(TICK, None)
            self.holding.act_on_answers()

    async def release_everything(self) -> None:
        """Give back every lease of this worker, known or not; nothing is charged."""
        sources, liveness = self._sources, self._liveness
        self._shift.leaves_leases = True
        await self._ask.run(lambda: sources.store.end_leases_of(liveness, (), now=sources.when.now))
        self._shift.leaves_leases = False
