"""What a worker does by the clock: timeouts, progress, the dead of its host, its own name."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from localqueue.errors import HandlerTimeout, StoreBusy, StoreFull, UnsupportedByStore
from localqueue.message import QueueMessage
from localqueue.stores.protocol import LeaseAnswer
from localqueue.workers.aftercare import Aftercare
from localqueue.workers.driver import Ask
from localqueue.workers.holding import Holding
from localqueue.workers.liveness import bury_the_dead
from localqueue.workers.shift import Shift
from localqueue.workers.source import Sources

BURY_EVERY = 0.25
SEEN_EVERY = 10.0
"""How often a worker with a name says that it is there."""
RECOVER_EVERY = 60.0
FIRST_RECOVERY = 1.0
"""How long handlers wait for it."""
REPORT_EVERY = 0.25
"""How often the progress of one handler is written."""


class Duties:
    """Each as often as it is due; together they cost microseconds when nothing is."""

    def __init__(
        self,
        shift: Shift,
        sources: Sources,
        ask: Ask,
        holding: Holding,
        aftercare: Aftercare,
        check_timeouts: Callable[[], object],
    ) -> None:
        self._shift = shift
        self._sources = sources
        self._ask = ask
        self._holding = holding
        self._aftercare = aftercare
        self._check_timeouts = check_timeouts
        self._next: dict[object, float] = {}
        self._begun = (0, 0.0)
        """How many handlers had begun, and since when that is so."""
        self._has_commits = any(source.commit is not None for source in sources)

    async def begin(self) -> None:
        """Before the first lease: what the dead ran is charged, and what they left is finished."""
        await self._bury_the_dead()
        if self._has_commits:
            self._recover(time.monotonic())
            await self._ask.run(lambda: self._aftercare.wait(FIRST_RECOVERY))

    async def do(self) -> None:
        now = time.monotonic()
        self._holding.act_on_answers()
        self._check_timeouts()
        if self._shift.held:
            self._check_stall(now)
            await self._report(now)
        await self._bury_the_dead()
        if self._sources.worker_id is not None and self._is_time_for("seen", now, SEEN_EVERY):
            await self._say_that_it_is_there(self._sources.worker_id)
        self._recover(now)

    def _is_time_for(self, duty: object, now: float, every: float) -> bool:
        if now < self._next.get(duty, 0.0):
            return False
        self._next[duty] = now + every
        return True

    def _check_stall(self, now: float) -> None:
        """What is leased ahead must not wait behind a slow handler."""
        begun = sum([slot.count for slot in self._shift.slots])
        before, since = self._begun
        if not self._shift.pending or begun != before:
            self._begun = (begun, now)
        elif now - max(since, self._shift.given_at) >= self._shift.patience:
            self._holding.give_back_pending()

    async def _report(self, now: float) -> None:
        """Write the progress of handlers, and hear whether somebody cancelled them."""
        for slot in self._shift.slots:
            if slot.note is None or not self._is_time_for(slot.number, now, REPORT_EVERY):
                continue
            (message, note), slot.note = slot.note, None
            if id(message) in self._shift.held and not self._sources[message.queue].removes:
                await self._write_progress(message, note)
        self._holding.act_on_answers()

    async def _write_progress(self, message: QueueMessage[Any], note: str) -> None:
        timeout = self._sources[message.queue].queue.lease_timeout
        answers: list[LeaseAnswer] = []
        # A report is not worth a worker's end: the next one may get through.
        with contextlib.suppress(StoreBusy, StoreFull, UnsupportedByStore):
            answers = await self._ask(
                lambda store: store.extend(
                    [message.receipt], timeout=timeout, note=note, now=self._sources.when.now
                )
            )
        for answer in answers:
            self._holding.hear(message, answer)

    async def _bury_the_dead(self) -> None:
        if not self._is_time_for("bury", time.monotonic(), BURY_EVERY):
            return
        store, now = self._sources.store, self._sources.when.now
        folder = store.run_folder
        if folder is not None:
            with contextlib.suppress(StoreBusy, StoreFull):
                await self._ask.run(lambda: bury_the_dead(store, folder, now))

    async def _say_that_it_is_there(self, worker_id: str) -> None:
        store, now = self._sources.store, self._sources.when.now

        def say() -> None:
            for name in self._sources.names:
                store.record_worker_heartbeat(name, worker_id, now=now)

        with contextlib.suppress(StoreBusy, StoreFull):
            await self._ask.run(say)

    def _recover(self, now: float) -> None:
        """Finish what crashed workers left half committed."""
        if not self._has_commits or not self._is_time_for("recover", now, RECOVER_EVERY):
            return
        for source in self._sources:
            if source.commit is not None:
                self._aftercare.recover(source.name, source.commit.recover)


def handler_timeout(timeout: float) -> HandlerTimeout:
    """What a handler is told that runs longer than this."""
    return HandlerTimeout(f"the handler ran longer than {timeout:g} seconds")
