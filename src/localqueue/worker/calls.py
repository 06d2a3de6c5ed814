"""The calls of a decorated function: each waits for a message and handles it."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from queue import Empty
from typing import Any

from localqueue.calls.face import Face
from localqueue.calls.getting import Getting
from localqueue.commits.home import Home
from localqueue.commits.intents import Intents
from localqueue.commits.open import commit_for
from localqueue.message import QueueMessage
from localqueue.policies.notification import NO_NOTIFICATION
from localqueue.policies.resolved import trait
from localqueue.queue import PersistentQueue
from localqueue.worker.delivery import Delivery, Equipment
from localqueue.worker.hands import Ended, Hand, Job
from localqueue.worker.lease_watch import LeaseWatch, Visit, watch_over
from localqueue.worker.options import WorkerOptions
from localqueue.worker.pace import Pace
from localqueue.workers.context import Slot, running_in

log = logging.getLogger("localqueue.workers")

LOOK_AGAIN = 1.0
"""While there is nothing: how often to look after others, and for what time alone changes."""
SEEN_EVERY = 1.0
RECOVER_EVERY = 60.0


class WorkerCalls:
    """What a decorated function does. Any number of calls at a time, of threads or of tasks.

    Written once, as coroutines over a ``Hand``: in a thread they never suspend. What a handler
    raised is carried as a value, and raised by the decorated function itself.
    """

    def __init__(self, queue: PersistentQueue[Any], options: WorkerOptions, hand: Hand) -> None:
        self._queue = queue
        self._options = options
        self._hand = hand
        self._face: Face = hand.face
        self._pace = Pace(options)
        self._getting = Getting(queue._attachment, self._face)
        self._removes = queue.delivery_policy.ack_timing == "before-delivery"
        self._equipment: Equipment | None = None
        self._seen_at = 0.0
        self._recovered_at = 0.0

    async def one(self, job: Job) -> Ended:
        """Handle one message; how that ended."""
        if self._equipment is None:
            self._equipment = await self._equip()
        equipment = self._equipment
        if self._removes:
            return await self._at_most_once(job, await self._next(equipment))
        # Asked for every time: a forked child has a watch of its own.
        watch = watch_over(equipment.store, equipment.when, self._queue.lease_timeout)
        visit = Visit(watch)
        try:
            liveness = visit.enter(start=False) or await self._face.run(visit.enter)
            while True:
                message = await self._next(equipment, watch, liveness)
                ended = await self._leased(equipment, job, message, watch)
                if ended is not None:
                    return ended
        finally:
            visit.leave()

    async def _equip(self) -> Equipment:
        when = await self._face.open()
        commit = await self._face.run(lambda: commit_for(self._queue))
        return Equipment(
            queue=self._queue,
            store=self._queue.store,
            when=when,
            commit=commit,
            pace=self._pace,
            options=self._options,
            hand=self._hand,
            intents=None if commit is None else await self._face.run(self._intents),
        )

    def _intents(self) -> Intents | None:
        home = Home.of(self._queue)
        keyed = trait(self._queue.delivery_policy, "idempotency_store", None) is not None
        return Intents(home, keyed=keyed) if home.keeps_records else None

    # --- waiting --------------------------------------------------------------------------------
    async def _next(
        self,
        equipment: Equipment,
        watch: LeaseWatch | None = None,
        liveness: str | None = None,
    ) -> QueueMessage[Any]:
        worker_id = self._options.worker_id
        if not self._pace.is_free:
            await self._pace.wait(self._hand.sleep)
        while True:
            await self._look_after_others(equipment, watch)
            with suppress(Empty):
                if not self._hears():
                    return await self._getting.get_message(True, LOOK_AGAIN, worker_id, liveness)
                return await self._heard(worker_id, liveness)

    def _hears(self) -> bool:
        """A store that wakes its waiters, also for other processes, needs nobody else to do it."""
        notification = self._options.notification
        return (
            notification is not NO_NOTIFICATION
            and not self._queue.store.capabilities.wakes_waiters
            and self._face.can_hear(notification)
        )

    async def _heard(self, worker_id: str | None, liveness: str | None) -> QueueMessage[Any]:
        """A message that is there, or that is after a notification or at its time; else Empty."""
        notification = self._options.notification
        notification.clear()
        # Looked at after clearing, so that a put in between sets it again.
        with suppress(Empty):
            return await self._getting.get_message(False, None, worker_id, liveness)
        await self._face.hear(notification, await self._until_due())
        return await self._getting.get_message(False, None, worker_id, liveness)

    async def _until_due(self) -> float:
        when = await self._face.open()
        due = await self._face.ask(lambda store: store.next_due((self._queue.name,)))
        return LOOK_AGAIN if due is None else min(LOOK_AGAIN, max(0.0, due - when.now()))

    async def _look_after_others(self, equipment: Equipment, watch: LeaseWatch | None) -> None:
        now = time.monotonic()
        if watch is not None and watch.is_time_to_bury():
            await self._face.run(watch.bury)
        worker_id = self._options.worker_id
        if worker_id is not None and now - self._seen_at >= SEEN_EVERY:
            self._seen_at = now
            await self._face.run(lambda: self._queue.record_worker_heartbeat(worker_id))
        if equipment.commit is not None and now >= self._recovered_at + RECOVER_EVERY:
            self._recovered_at = now
            try:
                await self._face.run(equipment.commit.recover)
            except Exception:
                log.exception("queue %r: what crashed workers left stays for now", self._queue.name)

    # --- handling -------------------------------------------------------------------------------
    async def _at_most_once(self, job: Job, message: QueueMessage[Any]) -> Ended:
        """It is removed already: one try, whatever comes of it."""
        start = await self._pace.start(self._hand.sleep)
        with running_in(Slot(0), message):
            ended = await self._hand.once(job, message, start, self._queue.telemetry)
        self._pace.ended(ended.error is None)
        return ended

    async def _leased(
        self, equipment: Equipment, job: Job, message: QueueMessage[Any], watch: LeaseWatch
    ) -> Ended | None:
        """Run and settle; None when the handler was not to run, or in vain: take the next one."""
        delivery = Delivery(equipment, message)
        with (
            running_in(delivery.slot, message),
            watch.holding(message.receipt, delivery.answered) as held,
        ):
            try:
                return await delivery.handled(job, held)
            except BaseException as error:
                # Interrupted outside the handler, or the store is in trouble.
                held.let_go()
                await delivery.give_back(error)
                raise
