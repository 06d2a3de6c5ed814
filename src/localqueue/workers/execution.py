"""What comes before and after a handler: may it run, how did it end, what is the store told."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from typing import Any

from localqueue.commits.protocol import NOTHING, Commit, Done, Extras, Wait
from localqueue.errors import (
    HandlerCancelled,
    HandlerDied,
    HandlerTimeout,
    LeaseLost,
    LocalQueueError,
    StoreBusy,
    StoreFull,
    WorkerStopped,
)
from localqueue.message import QueueMessage
from localqueue.outcome import (
    Abandoned,
    Ack,
    Cancel,
    Crashed,
    DeadLetter,
    Died,
    Failed,
    Interrupted,
    Outcome,
    Release,
    Settlement,
    Snooze,
    Succeeded,
)
from localqueue.rule import settle
from localqueue.stores.protocol import Settle
from localqueue.stores.settings import DEFAULT_SETTINGS
from localqueue.workers.context import CurrentMessage, Slot
from localqueue.workers.endings_log import log_end
from localqueue.workers.pace import Pace
from localqueue.workers.shift import Ended, Shift
from localqueue.workers.shutdown import StopNow
from localqueue.workers.source import Source, Sources

log = logging.getLogger("localqueue.workers")

ACK = Ack()
INTERRUPTS = (KeyboardInterrupt, StopNow)
"""What ends the worker and not only the handler."""
IN_TROUBLE = (StoreBusy, StoreFull)
"""What a store raises that can be asked again: no message is to blame."""
PATIENCE = 0.25
"""How long a store is left alone that raised one of these."""
_QUIETLY = contextlib.nullcontext()


class Execution:
    """The rule and the commit around a handler, in the thread of its runner.

    Where a commit has something to do this blocks: runners on an event loop call it in a thread.
    """

    def __init__(self, shift: Shift, sources: Sources, pace: Pace) -> None:
        self._shift = shift
        self._sources = sources
        self._pace = pace
        self.is_plain = sources.are_plain() and not pace.counts
        """Whether a success that nobody looked at is an acknowledgement and nothing else."""

    def source(self, message: QueueMessage[Any]) -> Source:
        return self._sources[message.queue]

    def is_simple(self) -> bool:
        """Whether nothing comes before a handler now, and nothing but an ack after its success."""
        return self.is_plain and not self._sources.is_anyone_listening()

    def around(
        self, source: Source, message: QueueMessage[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """What surrounds the handler for those who listen."""
        return source.emitter.handling(message) if source.emitter.active else _QUIETLY

    def tell_handled(
        self, message: QueueMessage[Any], seconds: float, error: BaseException | None
    ) -> None:
        """A handler ran elsewhere and took so long: those who listen hear of it now."""
        emitter = self._sources[message.queue].emitter
        if emitter.active:
            emitter.handled(message, seconds, error)

    def turns_away(self, message: QueueMessage[Any]) -> bool:
        """Whether the worker stops and no handler begins any more: the message was given back.

        What was removed when it was leased cannot be: it begins as long as there is time to drain.
        """
        shutdown, removes = self._shift.shutdown, self._sources[message.queue].removes
        if not shutdown.asked or (removes and not shutdown.is_over()):
            return False
        self.give_back(message)
        return True

    def give_back(self, message: QueueMessage[Any]) -> None:
        """No handler has begun, and none will here."""
        self._pace.ended(None)
        removes = self._sources[message.queue].removes
        self._end(message, Release(), "lost" if removes else "returned")

    def take_back(self, message: QueueMessage[Any]) -> None:
        """Whatever ran its handler is gone, and this message is not known to have caused it.

        It is delivered again, and nothing is charged.
        """
        source = self._sources[message.queue]
        self._drop(message, source.commit)
        self._end(message, Release(), "lost" if source.removes else "released")

    def begin(self, message: QueueMessage[Any], commit: Commit) -> bool:
        """Whether the handler is to run; False when the delivery has ended without it.

        What it raises is a failure of the delivery, as if the handler had raised it.
        """
        try:
            answer = commit.begin(message)
        except LeaseLost as error:
            self._lose(message, commit, error)
            return False
        except IN_TROUBLE as error:
            _log_trouble(message, error)
            self._pace.ended(None)
            self._end(message, Release(PATIENCE), "returned")
            return False
        match answer:
            case Done(_, extras):
                self._end(message, ACK, "done", extras, commit)
                self._pace.ended(None)
                return False
            case Wait(seconds):
                self._end(message, Release(seconds), "snoozed")
                self._pace.ended(None)
                return False
        return True

    def success(self, slot: Slot, message: QueueMessage[Any], result: Any) -> None:
        """The handler returned. What it was told meanwhile may make this a failure."""
        source = self._sources[message.queue]
        current = slot.told(message)
        reason = None if current is None else current.reason
        if current is not None and current.lease_lost:
            self._drop(message, source.commit)
            return
        if isinstance(reason, (HandlerTimeout, WorkerStopped)):
            self.failure(slot, message, reason)
            return
        extras = NOTHING
        if source.commit is not None:
            try:
                extras = self._ask_for_extras(source.commit, message, result)
            except LeaseLost as error:
                self._lose(message, source.commit, error)
                return
            except IN_TROUBLE:
                # The handler runs again then: nothing else is left to be done.
                self._drop(message, source.commit)
                self._end(message, Release(PATIENCE), "released")
                return
            except BaseException as error:
                self.failure(slot, message, error)
                if isinstance(error, INTERRUPTS):
                    raise
                return
        self._pace.ended(True)
        self._end(message, ACK, "done", extras, source.commit)

    def failure(self, slot: Slot, message: QueueMessage[Any], error: BaseException) -> None:
        """The handler raised, or could not run."""
        ended = self.failed(slot.told(message), message, error)
        if ended is not None:
            self._shift.ended.append(ended)

    def failed(
        self, current: CurrentMessage | None, message: QueueMessage[Any], error: BaseException
    ) -> Ended | None:
        """The same, for whoever settles it: how it ended. None when its lease is lost."""
        source = self._sources[message.queue]
        if current is not None and current.lease_lost:
            self._drop(message, source.commit)
            return None
        outcome = outcome_of(error, None if current is None else current.reason)
        settlement = settle(
            outcome, failures=message.failures, policy=source.policy, luck=random.random()
        )
        self._pace.ended(_says_of_the_service(outcome, source))
        extras = NOTHING
        if source.commit is not None:
            extras = _commit_failure(source.commit, message, outcome, settlement)
        counts_as = _counts_as(outcome, settlement)
        if counts_as == "crashed" and not source.removes and self._is_one_crash_too_many(message):
            counts_as = "dead"
        is_interrupted = isinstance(outcome, Interrupted)
        if not is_interrupted or self._shift.is_first_to_interrupt(message):
            log_end(message, outcome, settlement, counts_as, source, self._sources.worker_id)
        return self._ended(message, settlement, counts_as, extras)

    def _is_one_crash_too_many(self, message: QueueMessage[Any]) -> bool:
        """Whether the store makes a dead letter of it, as far as one can know before."""
        try:
            found = self._sources.store.settings(message.queue)
        except Exception:
            # The store is in trouble, and what it does with the message is seen there.
            return False
        limit = (DEFAULT_SETTINGS if found is None else found[0]).crash_limit
        return 0 < limit <= message.crashes + 1

    def _ask_for_extras(self, commit: Commit, message: QueueMessage[Any], result: Any) -> Extras:
        """What its success writes. A store in trouble is asked again for as long as a lease lasts.

        The handler is done, and would have to run again.
        """
        deadline = time.monotonic() + self._sources.lease_timeout
        while True:
            try:
                return commit.success(message, result)
            except IN_TROUBLE as error:
                _log_trouble(message, error)
                is_held = id(message) in self._shift.held and not self._shift.shutdown.is_over()
                if not is_held or time.monotonic() + PATIENCE > deadline:
                    raise
            time.sleep(PATIENCE)

    def _lose(self, message: QueueMessage[Any], commit: Commit, error: LeaseLost) -> None:
        """Another delivery came first: what this one did is dropped, and nothing is charged."""
        log.warning("message %s of %r: %s; its result is dropped", message.id, message.queue, error)
        self._drop(message, commit)
        # Only the key may be another's: then the message is still leased, and must not stay so.
        self._end(message, Release(), "lost")

    def _drop(self, message: QueueMessage[Any], commit: Commit | None) -> None:
        """The lease is lost, and someone else may have the message: nothing is written."""
        self._pace.ended(None)
        if commit is not None:
            try:
                commit.dropped(message)
            except Exception:
                log.exception(
                    "message %s of %r: its commit could not be undone", message.id, message.queue
                )

    def _end(
        self,
        message: QueueMessage[Any],
        settlement: Settlement,
        counts_as: str,
        extras: Extras = NOTHING,
        commit: Commit | None = None,
    ) -> None:
        self._shift.ended.append(self._ended(message, settlement, counts_as, extras, commit))

    def _ended(
        self,
        message: QueueMessage[Any],
        settlement: Settlement,
        counts_as: str,
        extras: Extras = NOTHING,
        commit: Commit | None = None,
    ) -> Ended:
        if self._sources[message.queue].removes:
            # What failed or was interrupted is lost, as the policy says.
            return Ended(message, None, counts_as)
        told = Settle(message.receipt, settlement, extras.records, extras.puts)
        return Ended(message, told, counts_as, commit)


def outcome_of(error: BaseException, reason: LocalQueueError | None = None) -> Outcome:
    """How the handler ended that raised this, and that was told to end for this reason."""
    match reason:
        case HandlerTimeout():
            return Failed(reason)
        case HandlerCancelled():
            return Abandoned()
        case WorkerStopped() | LeaseLost():
            return Interrupted()
    if isinstance(error, INTERRUPTS):
        return Interrupted()
    if isinstance(error, HandlerDied):
        return Died(error)
    return Failed(error)


def _says_of_the_service(outcome: Outcome, source: Source) -> bool | None:
    """Whether the end counts for a circuit breaker, and as what."""
    match outcome:
        case Succeeded():
            return True
        case Failed(Snooze()):
            return None
        case Failed(error):
            # Missing code says nothing about a service that others could reach.
            return None if source.policy.is_permanent(error) else False
    return None


def _counts_as(outcome: Outcome, settlement: Settlement) -> str:
    match outcome, settlement:
        case _, DeadLetter():
            return "dead"
        case _, Crashed():
            return "crashed"
        case _, Cancel():
            return "cancelled"
        case Failed(Snooze()), _:
            return "snoozed"
        case Failed(), _:
            return "failed"
    return "released"


def _commit_failure(
    commit: Commit, message: QueueMessage[Any], outcome: Outcome, settlement: Settlement
) -> Extras:
    try:
        match outcome:
            case Failed(Snooze()):
                commit.dropped(message)
            case Failed(error) | Died(error):
                return commit.failure(message, error, isinstance(settlement, DeadLetter))
            case _:
                commit.dropped(message)
    except Exception:
        log.exception("message %s of %r: its commit could not be undone", message.id, message.queue)
    return NOTHING


def _log_trouble(message: QueueMessage[Any], error: BaseException) -> None:
    log.warning("message %s of %r waits for a store: %s", message.id, message.queue, error)
