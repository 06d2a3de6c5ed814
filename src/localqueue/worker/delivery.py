"""One message of a decorated function, from the lease to its end.

commit.begin ──▶ tries inside the lease ──▶ rule ──▶ settle ──▶ what the caller gets
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tenacity import RetryError

from localqueue.clock import StoreTime
from localqueue.commits.protocol import NOTHING, Commit, Done, Extras, Wait
from localqueue.errors import HandlerCancelled, LeaseLost, StoreError
from localqueue.message import QueueMessage
from localqueue.outcome import (
    Ack,
    Cancel,
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
from localqueue.rule import settle
from localqueue.stores.protocol import LeaseAnswer, QueueStore, Settle, Settled
from localqueue.stores.records import RecordChange
from localqueue.worker.hands import Ended, Hand, Job, Running
from localqueue.worker.lease_watch import HeldLease
from localqueue.worker.options import WorkerOptions
from localqueue.worker.pace import Pace
from localqueue.worker.tries import Tries
from localqueue.workers.context import Slot
from localqueue.workers.execution import outcome_of

log = logging.getLogger("localqueue.workers")

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
        )
        self._reported_at = 0.0
        self._is_settled = False

    async def handled(self, job: Job, held: HeldLease) -> Ended | None:
        """Run the handler, settle, and say what the caller gets; None if the next is to be taken.

        Raises only what has nothing to do with the handler.
        """
        message, commit = self.message, self._commit
        if commit is not None:
            try:
                answer = await self._face.run(lambda: commit.begin(message))
            except Exception as error:
                self._tries.uncounted = True
                return await self._failed(Ended(error=error), held)
            if isinstance(answer, Done):
                return await self._done_before(answer, held)
            if isinstance(answer, Wait):
                held.let_go()
                await self._settled(Release(answer.seconds))
                return None
        if not self._pace.is_free:
            await self._pace.start(self._hand.sleep)
        if self._tries.may_be_recorded:
            await self._face.run(self._tries.open)
        ended = await self._hand.tries(job, self._running())
        current = self.slot.told(message)
        if current is not None and current.lease_lost:
            held.let_go()
            return await self._dropped(ended)
        if ended.error is not None:
            return await self._failed(ended, held)
        return await self._succeeded(ended, held)

    async def give_back(self, error: BaseException) -> None:
        """Nobody will settle it: release it, and charge nothing. Raises nothing of its own."""
        if self._is_settled:
            return
        self._pace.ended(None)
        told = Settle(self.message.receipt, Release())
        equipment = self._equipment
        with suppress(StoreError):
            if isinstance(error, GeneratorExit):
                # A coroutine that is closed may not wait for anybody.
                equipment.store.settle(told, now=equipment.when.now)
            else:
                await self._face.ask(lambda store: store.settle(told, now=equipment.when.now))
                await self._undone()

    def answered(self, answer: LeaseAnswer) -> None:
        """The heartbeat extended the lease, or could not. In its thread."""
        match answer:
            case LeaseAnswer.HELD:
                if self._commit is not None:
                    self._commit.extended(self.message, self._equipment.queue.lease_timeout)
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
        answer = await self._settled(Ack(), done.extras)
        if answer is Settled.CONFLICT:
            await self._settled(Release())
            return None
        if answer is Settled.DONE:
            await self._aftercare()
        return Ended(done.result)

    async def _succeeded(self, ended: Ended, held: HeldLease) -> Ended | None:
        commit, extras = self._commit, NOTHING
        if commit is not None:
            try:
                extras = await self._face.run(lambda: commit.success(self.message, ended.result))
            except Exception as error:
                self._tries.uncounted = True
                return await self._failed(Ended(error=error), held)
        held.let_go()
        try:
            answer = await self._settled(Ack(), extras, self._tries.clearing())
        except StoreError:
            raise
        except Exception as error:
            # A follow-up that no queue can take.
            self._tries.uncounted = True
            return await self._failed(Ended(error=error), held)
        self._pace.ended(True)
        match answer:
            case Settled.STALE:
                return await self._dropped(ended)
            case Settled.CONFLICT:
                # Another delivery of the key came first: the next one tells what became of it.
                await self._undone()
                await self._settled(Release())
                return None
        await self._aftercare()
        if self._options.attempt_store is not None:
            await self._face.run(self._tries.succeeded)
        return ended

    async def _failed(self, ended: Ended, held: HeldLease) -> Ended:
        assert ended.error is not None
        error = _underlying(ended.error)
        outcome = self._outcome(error)
        settlement = self._ruled(outcome, error)
        charged = _charges(settlement)
        extras = await self._committed_failure(outcome, settlement)
        held.let_go()
        answer = await self._settled(settlement, extras, self._tries.clearing() if charged else ())
        if answer is Settled.CONFLICT:
            await self._settled(settlement)
        self._tell_pace(outcome)
        return Ended() if isinstance(error, Snooze) else ended

    async def _dropped(self, ended: Ended) -> Ended:
        """The lease is over, and someone else may have the message: nothing is written."""
        self._is_settled = True
        self._pace.ended(None)
        log.warning(
            "message %s of %r: its lease was over, the result is dropped",
            self.message.id,
            self.message.queue,
        )
        await self._undone()
        lost = ended.error is None or isinstance(ended.error, LeaseLost)
        return Ended() if lost else ended

    def _outcome(self, error: BaseException) -> Outcome:
        if self._hand.is_interrupted(error):
            return Interrupted()
        current = self.slot.told(self.message)
        return outcome_of(error, None if current is None else current.reason)

    def _ruled(self, outcome: Outcome, error: BaseException) -> Settlement:
        """The rule's answer. Whatever ended the tries was the last one, unless it says when."""
        says_when = isinstance(error, Retry) and error.after is not None
        policy = self._options.again if says_when else self._options.final
        settlement = settle(outcome, failures=self._tries.total() - 1, policy=policy)
        if isinstance(settlement, (Release, DeadLetter)) and settlement.error is not None:
            return replace(settlement, failures=self._tries.failures())
        return settlement

    async def _committed_failure(self, outcome: Outcome, settlement: Settlement) -> Extras:
        commit = self._commit
        if commit is None:
            return NOTHING
        try:
            match outcome:
                case Failed(error) if not isinstance(error, Snooze):
                    final = isinstance(settlement, DeadLetter)
                    return await self._face.run(lambda: commit.failure(self.message, error, final))
            await self._face.run(lambda: commit.dropped(self.message))
        except Exception:
            log.exception(
                "message %s of %r: its commit could not be undone",
                self.message.id,
                self.message.queue,
            )
        return NOTHING

    def _tell_pace(self, outcome: Outcome) -> None:
        match outcome:
            case Failed(error) if not isinstance(error, Snooze):
                if self._options.final.is_permanent(error):
                    self._pace.failed_for_good()
                else:
                    self._pace.ended(False)
            case _:
                self._pace.ended(None)

    # --- with the store -------------------------------------------------------------------------
    async def _settled(
        self,
        settlement: Settlement,
        extras: Extras = NOTHING,
        records: tuple[RecordChange, ...] = (),
    ) -> Settled:
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

    async def _aftercare(self) -> None:
        """The acknowledgement is durable."""
        commit = self._commit
        if commit is not None:
            await self._face.run(lambda: commit.settled(self.message))

    async def _undone(self) -> None:
        commit = self._commit
        if commit is not None:
            await self._face.run(lambda: commit.dropped(self.message))

    # --- with the handler -----------------------------------------------------------------------
    def _running(self) -> Running:
        return Running(
            self.message,
            self.slot,
            self._tries,
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
            with suppress(StoreError):
                (answer,) = equipment.store.extend(
                    [self.message.receipt],
                    timeout=equipment.queue.lease_timeout,
                    note=note,
                    now=equipment.when.now,
                )
                self.answered(answer)

        return extend


def _underlying(error: BaseException) -> BaseException:
    """Tenacity's RetryError is only the messenger of the last failure."""
    if isinstance(error, RetryError) and error.last_attempt.failed:
        return error.last_attempt.exception() or error
    return error


def _charges(settlement: Settlement) -> bool:
    """Whether what was tried is on the message's account now, or does not matter any more."""
    match settlement:
        case Release(_, error):
            return error is not None
        case DeadLetter() | Cancel():
            return True
    return False
