"""One message of a decorated function, from the lease to its end.

commit.begin ──▶ tries inside the lease ──▶ commit.success ──▶ settle ──▶ what the caller gets
     └──── raises ─────────┴──▶ rule, or dropped ─┴─────────────▲

Each arrow after the handler is gone along to its end, whoever is cancelled meanwhile.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tenacity import RetryError

from localqueue.clock import StoreTime
from localqueue.commits.intents import Intents
from localqueue.commits.protocol import NOTHING, Commit, Done, Extras, Wait
from localqueue.errors import HandlerCancelled, LeaseLost, StoreError
from localqueue.message import QueueMessage
from localqueue.outcome import (
    Ack,
    Crashed,
    DeadLetter,
    Failed,
    Interrupted,
    Outcome,
    Release,
    Retry,
    Settlement,
    Snooze,
)
from localqueue.queue import PersistentQueue
from localqueue.rule import FailurePolicy, settle
from localqueue.stores.protocol import LeaseAnswer, QueueStore, Settle, Settled
from localqueue.stores.records import RecordChange
from localqueue.worker.extensions import Extensions
from localqueue.worker.hands import Ended, Hand, Job, Running
from localqueue.worker.lease_watch import HeldLease
from localqueue.worker.options import WorkerOptions
from localqueue.worker.pace import Pace, Start
from localqueue.worker.tries import Tries
from localqueue.workers.context import Slot
from localqueue.workers.execution import outcome_of

log = logging.getLogger("localqueue.workers")

R = TypeVar("R")

REPORT_EVERY = 0.25
"""How often the progress of one handler is written."""


@dataclass(frozen=True, slots=True, eq=False)
class Equipment:
    """What all deliveries of a decorated function work with."""

    queue: PersistentQueue[Any]
    store: QueueStore
    when: StoreTime
    commit: Commit | None
    pace: Pace
    options: WorkerOptions
    hand: Hand
    intents: Intents | None
    """Successes that are decided and not written everywhere yet."""


class Delivery:
    """A message that is leased and not settled yet."""

    def __init__(self, equipment: Equipment, message: QueueMessage[Any]) -> None:
        self.message = message
        self.slot = Slot(0, self._report)
        self._equipment = equipment
        self._commit = equipment.commit
        self._hand = equipment.hand
        self._face = equipment.hand.face
        self._pace = equipment.pace
        self._options = equipment.options
        self._tries = Tries(
            message,
            equipment.store,
            equipment.when,
            equipment.options.attempt_store,
            clear_on_success=equipment.options.retry.get("clear_on_success", True),
            count_crashes=equipment.options.retry.get("count_crashes", False),
        )
        self._extensions = (
            None
            if equipment.commit is None
            else Extensions(equipment.commit, message, equipment.queue.lease_timeout)
        )
        self._reported_at = 0.0
        self._start = Start()
        self._has_started = False
        """The pace has counted it, and waits to hear how it ended."""
        self._is_settled = False
        self._is_left_halfway = False
        """The coroutine was closed, and a thread may still write a success."""

    async def handled(self, job: Job, held: HeldLease) -> Ended | None:
        """Run the handler, settle, and say what the caller gets; None if the next is to be taken.

        Raises only what has nothing to do with the handler.
        """
        message, commit = self.message, self._commit
        if self._tries.may_be_recorded:
            await self._face.run(self._tries.open)
        if commit is not None:
            try:
                answer = await self._to_the_end(self._face.run(lambda: commit.begin(message)))
            except BaseException as error:
                if self._is_from_outside(error):
                    raise
                return await self._to_the_end(self._commit_failed(job, error, held))
            if isinstance(answer, Done):
                return await self._to_the_end(self._done_before(answer, held))
            if isinstance(answer, Wait):
                held.let_go()
                await self._to_the_end(self._released(answer.seconds))
                return None
        if not self._pace.is_free:
            self._start = await self._pace.start(self._hand.sleep)
        self._has_started = True
        ended = await self._hand.tries(job, self._running())
        # Asked here: it is about the task that is interrupted.
        interrupted = ended.error is not None and self._hand.is_interrupted(
            _underlying(ended.error)
        )
        return await self._to_the_end(self._ended(job, ended, held, interrupted))

    async def give_back(self, error: BaseException) -> None:
        """Nobody will settle it: release it, and charge nothing. Raises nothing of its own."""
        if self._is_settled or self._is_left_halfway:
            return
        self._tell_pace(None)
        with suppress(StoreError):
            if self._hand.is_closing(error):
                # A coroutine that is closed may not wait for anybody.
                told = Settle(self.message.receipt, self._tries.release(), self._tries.clearing())
                self._equipment.store.settle(told, now=self._equipment.when.now)
            else:
                await self._hand.to_the_end(self._given_back())

    async def _given_back(self) -> None:
        await self._released()
        await self._undone()

    def answered(self, answer: LeaseAnswer) -> None:
        """The heartbeat extended the lease, or could not. In its thread."""
        match answer:
            case LeaseAnswer.HELD:
                if self._extensions is not None:
                    self._extensions.extended()
            case LeaseAnswer.LOST:
                self.slot.tell(
                    self.message, LeaseLost(f"the lease of message {self.message.id} is over")
                )
            case LeaseAnswer.CANCEL_ASKED:
                self.slot.tell(
                    self.message, HandlerCancelled(f"message {self.message.id} was cancelled")
                )

    # --- how it ends ----------------------------------------------------------------------------
    async def _done_before(self, done: Done, held: HeldLease) -> Ended | None:
        """An earlier delivery did the work, and only its acknowledgement is missing."""
        held.let_go()
        answer = await self._settled(Ack(), done.extras, self._tries.clearing())
        if answer is Settled.CONFLICT:
            await self._released()
            return None
        if answer is Settled.DONE:
            await self._aftercare()
        return Ended(done.result)

    async def _ended(
        self, job: Job, ended: Ended, held: HeldLease, interrupted: bool
    ) -> Ended | None:
        """The handler has ended."""
        current = self.slot.told(self.message)
        if current is not None and current.lease_lost:
            held.let_go()
            return await self._dropped(ended)
        if ended.error is None:
            return await self._succeeded(job, ended, held)
        error = _underlying(ended.error)
        outcome = Interrupted() if interrupted else self._outcome(error)
        # Whatever ended the tries was the last one, unless it says when.
        says_when = isinstance(error, Retry) and error.after is not None
        policy = await self._later(job, error) if says_when else self._options.final
        await self._failed(outcome, policy, held)
        return Ended() if isinstance(error, Snooze) else ended

    async def _succeeded(self, job: Job, ended: Ended, held: HeldLease) -> Ended | None:
        commit, extras = self._commit, NOTHING
        if commit is not None:
            try:
                extras = await self._face.run(lambda: commit.success(self.message, ended.result))
            except BaseException as error:
                if self._is_from_outside(error):
                    raise
                return await self._commit_failed(job, error, held)
        held.let_go()
        try:
            answer = await self._settled(Ack(), extras, self._tries.clearing())
        except StoreError:
            raise
        except Exception as error:
            # A follow-up that no queue can take.
            return await self._commit_failed(job, error, held)
        match answer:
            case Settled.STALE:
                return await self._dropped(ended)
            case Settled.CONFLICT:
                # Another delivery of the key came first: the next one tells what became of it.
                self._tell_pace(True)
                await self._undone()
                await self._released()
                return None
        self._tell_pace(True)
        await self._aftercare()
        if self._options.attempt_store is not None:
            await self._face.run(self._tries.succeeded)
        return ended

    async def _commit_failed(self, job: Job, error: BaseException, held: HeldLease) -> Ended:
        """What comes before or after the handler failed, and not the handler."""
        if isinstance(error, LeaseLost):
            await self._undone()
            held.let_go()
            # Refused if the message is somebody else's. If only its key is, it comes back at once.
            await self._released()
            return await self._dropped(Ended(error=error), undo=False)
        if await self._is_decided():
            held.let_go()
            # The handler is not run again, and what is missing is written until it is.
            wait = self._options.again.backoff.delay(self.message.attempts - 1, random.random())
            await self._released(wait)
            self._tell_pace(False)
        else:
            self._tries.uncounted = True
            await self._failed(self._outcome(error), await self._later(job, error), held)
        return Ended(error=error)

    async def _failed(self, outcome: Outcome, policy: FailurePolicy, held: HeldLease) -> None:
        settlement = self._ruled(outcome, policy)
        extras = await self._committed_failure(outcome, settlement)
        held.let_go()
        # A crash is not a failure: what was recorded stays for the next delivery.
        clearing = () if isinstance(settlement, Crashed) else self._tries.clearing()
        answer = await self._settled(settlement, extras, clearing)
        if answer is Settled.CONFLICT:
            await self._settled(settlement, records=clearing)
        match outcome:
            case Failed(error) if not isinstance(error, Snooze):
                if policy.is_permanent(error):
                    self._tell_pace_of_missing_code()
                else:
                    self._tell_pace(False)
            case _:
                self._tell_pace(None)

    async def _dropped(self, ended: Ended, *, undo: bool = True) -> Ended:
        """The lease is over, and someone else may have the message: nothing is written."""
        self._end_extensions()
        self._is_settled = True
        self._tell_pace(None)
        log.warning(
            "message %s of %r: its lease was over, the result is dropped",
            self.message.id,
            self.message.queue,
        )
        if undo:
            await self._undone()
        lost = ended.error is None or isinstance(ended.error, LeaseLost)
        return Ended() if lost else ended

    def _outcome(self, error: BaseException) -> Outcome:
        current = self.slot.told(self.message)
        return outcome_of(error, None if current is None else current.reason)

    def _ruled(self, outcome: Outcome, policy: FailurePolicy) -> Settlement:
        """The rule's answer, with all that failed in this delivery."""
        failures = self._tries.total() - 1
        settlement = settle(outcome, failures=failures, policy=policy, luck=random.random())
        match settlement:
            case Release(delay, None):
                return self._tries.release(delay)
            case Release() | DeadLetter():
                return replace(settlement, failures=self._tries.failures())
        return settlement

    async def _later(self, job: Job, error: BaseException) -> FailurePolicy:
        """The rule for an error that Tenacity does not retry: its budget is the same."""
        again = self._options.again
        try:
            spent = await self._hand.is_spent(job, self._running(), error)
        except Exception:
            log.exception("the stop of a worker of %r cannot tell: stopped", self.message.queue)
            spent = True
        return replace(again, max_tries=1) if spent else again

    async def _committed_failure(self, outcome: Outcome, settlement: Settlement) -> Extras:
        commit = self._commit
        if commit is None:
            return NOTHING
        match outcome:
            case Failed(error) if not isinstance(error, Snooze):
                try:
                    final = isinstance(settlement, DeadLetter)
                    return await self._face.run(lambda: commit.failure(self.message, error, final))
                except Exception as broken:
                    self._complain("its commit could not be undone", broken)
            case _:
                await self._undone()
        return NOTHING

    def _tell_pace(self, good: bool | None) -> None:
        """Once, and only of what it has let start."""
        if self._has_started:
            self._has_started = False
            self._pace.ended(good)

    def _tell_pace_of_missing_code(self) -> None:
        if self._has_started:
            self._has_started = False
            self._pace.failed_for_good()

    def _is_from_outside(self, error: BaseException) -> bool:
        return self._hand.is_closing(error) or self._hand.is_interrupted(error)

    async def _to_the_end(self, steps: Coroutine[Any, Any, R]) -> R:
        """What has begun is not left halfway because somebody is cancelled."""
        try:
            return await self._hand.to_the_end(steps)
        except BaseException as error:
            self._is_left_halfway = self._hand.is_closing(error)
            raise

    # --- with the store -------------------------------------------------------------------------
    async def _settled(
        self,
        settlement: Settlement,
        extras: Extras = NOTHING,
        records: tuple[RecordChange, ...] = (),
    ) -> Settled:
        self._end_extensions()
        told = Settle(
            self.message.receipt, settlement, (*extras.records, *records), tuple(extras.puts)
        )
        now = self._equipment.when.now
        if isinstance(settlement, Ack) and not told.records and not told.puts:
            receipts = (told.receipt,)
            held = await self._face.ask(lambda store: store.ack_many(receipts, now=now))
            answer = Settled.DONE if held[0] else Settled.STALE
        else:
            answer = await self._face.ask(lambda store: store.settle(told, now=now))
        self._is_settled = answer is not Settled.CONFLICT
        announce = self._equipment.queue.telemetry.announce
        if announce is not None:
            announce.settled((self.message,), (settlement,), (answer,))
        return answer

    async def _released(self, delay: float = 0.0) -> None:
        """It comes back, and is charged only with the tries that were recorded."""
        await self._settled(self._tries.release(delay), records=self._tries.clearing())

    async def _is_decided(self) -> bool:
        """Whether its success stands, and is only not written everywhere."""
        intents = self._equipment.intents
        if intents is None:
            return False
        noted = await self._face.run(lambda: intents.find(self.message))
        return noted is not None and noted.message.id == self.message.id

    async def _aftercare(self) -> None:
        """The acknowledgement is durable, whatever comes of the rest."""
        commit = self._commit
        if commit is not None:
            try:
                await self._face.run(lambda: commit.settled(self.message))
            except Exception as error:
                self._complain("what follows its acknowledgement is left to recovery", error)

    async def _undone(self) -> None:
        commit = self._commit
        if commit is not None:
            try:
                await self._face.run(lambda: commit.dropped(self.message))
            except Exception as error:
                self._complain("its commit could not be undone", error)

    def _end_extensions(self) -> None:
        if self._extensions is not None:
            self._extensions.end()

    def _complain(self, of_what: str, error: Exception) -> None:
        message = self.message
        log.error("message %s of %r: %s", message.id, message.queue, of_what, exc_info=error)

    # --- with the handler -----------------------------------------------------------------------
    def _running(self) -> Running:
        return Running(
            self.message,
            self.slot,
            self._tries,
            self._start,
            self._equipment.queue.telemetry,
            self._options.final,
        )

    def _report(self, message: QueueMessage[Any], note: str) -> None:
        """The handler says how far it is: its lease is extended with that."""
        now = time.monotonic()
        if now - self._reported_at >= REPORT_EVERY:
            self._reported_at = now
            self._hand.later(self._extension(note))

    def _extension(self, note: str) -> Callable[[], object]:
        equipment = self._equipment

        def extend() -> None:
            try:
                (answer,) = equipment.store.extend(
                    [self.message.receipt],
                    timeout=equipment.queue.lease_timeout,
                    note=note,
                    now=equipment.when.now,
                )
                self.answered(answer)
            except StoreError:
                pass  # the heartbeat complains if that lasts
            except Exception as error:
                self._complain("its progress could not be noted", error)

        return extend


def _underlying(error: BaseException) -> BaseException:
    """Tenacity's RetryError is only the messenger of the last failure."""
    if isinstance(error, RetryError) and error.last_attempt.failed:
        return error.last_attempt.exception() or error
    return error
