"""What a worker holds: given to runners, given back, cancelled, lost."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from localqueue.errors import HandlerCancelled, LeaseLost, StoreError, WorkerStopped
from localqueue.message import QueueMessage, Receipt
from localqueue.outcome import Cancel, DeadLetter, Release, Settlement, describe_error
from localqueue.stores.leased import size_of
from localqueue.stores.present import present_leased
from localqueue.stores.protocol import LeaseAnswer, Settle, Settled, StoredMessage
from localqueue.workers.aftercare import Aftercare
from localqueue.workers.driver import Ask
from localqueue.workers.endings_log import log_interrupted
from localqueue.workers.heartbeat import Held
from localqueue.workers.pace import Pace
from localqueue.workers.settling import Settling
from localqueue.workers.shift import Ended, Shift
from localqueue.workers.source import Group, Sources

log = logging.getLogger("localqueue.workers")

LARGE_BYTES = 256 * 1024
"""From so many on, decoding is not done on the loop."""


STUCK = 0.1
"""When the foreman was not seen for so long, the heartbeat does what cannot wait for it."""


class Holding:
    """The leases of a shift. For the foreman, but for what the heartbeat asks and answers."""

    def __init__(
        self,
        shift: Shift,
        sources: Sources,
        ask: Ask,
        settling: Settling,
        aftercare: Aftercare,
        pace: Pace,
    ) -> None:
        self._shift = shift
        self._sources = sources
        self._ask = ask
        self._settling = settling
        self._aftercare = aftercare
        self._pace = pace
        self.kept: list[QueueMessage[Any]] = []
        """Removed when they were leased, and not allowed to begin yet."""
        self._answers: deque[tuple[QueueMessage[Any], LeaseAnswer]] = deque()
        self._asked_for: dict[Receipt, QueueMessage[Any]] = {}
        self._begun: set[int] = set()
        """The ``id()`` of those of them whose handlers had begun."""
        self._returned: deque[QueueMessage[Any]] = deque()
        """Given back by the heartbeat, and not accounted for."""
        self._taken: deque[QueueMessage[Any]] = deque()
        """Taken from the runners by the heartbeat, which could not give them back."""
        self._failed: deque[tuple[Ended, Settled]] = deque()
        """Settled while the foreman could not, and not accounted for."""
        self._elsewhere: dict[int, Ended] = {}
        """These, and those that are being settled so, by the ``id()`` of their messages."""
        self._count = -1
        """How many handlers had begun when the heartbeat last looked."""

    async def take(self, group: Group, leased: Sequence[StoredMessage]) -> list[QueueMessage[Any]]:
        """The messages of a lease; what cannot be decoded becomes a dead letter."""
        drift = self._sources.when.drift()
        if size_of(leased) < LARGE_BYTES:
            messages, damaged = present_leased(leased, group.codec, drift)
        else:
            messages, damaged = await self._ask.run(
                lambda: present_leased(leased, group.codec, drift)
            )
        for receipt, error in damaged:
            log.error("message %s of %r cannot be decoded: %s", receipt.id, receipt.queue, error)
            message: QueueMessage[Any] = QueueMessage(
                receipt.id, None, receipt.queue, token=receipt.token
            )
            self._hold(message)
            self._end(message, DeadLetter(describe_error(error)), "dead")
        for message in messages:
            self._hold(message)
        return messages

    def give_back(self, messages: Sequence[QueueMessage[Any]]) -> None:
        """No handler has begun: they go back to their queue, and nothing is charged."""
        for message in messages:
            if self._holds(message):
                self._end(message, Release(), "returned")

    def give_back_pending(self) -> None:
        """All that was leased ahead, but for what only a handler can have: what was removed."""
        # One by one: a runner that looks meanwhile must find the others.
        for message in list(self._shift.pending):
            if not self._sources[message.queue].removes and self._takes_from_pending(message):
                self._pace.ended(None)
                self.give_back([message])

    def take_back_running(self) -> bool:
        """Nobody waits any longer for what runs: it goes back, uncharged. Whether anything did.

        What was removed and is still pending is lost.
        """
        ended = self._settling.known() | set(self._elsewhere)
        left = [m for key, m in self._shift.held.items() if key not in ended]
        kept, self.kept = {id(message) for message in self.kept}, []
        self._shift.pending.clear()
        for message in left:
            if id(message) not in kept:
                self._pace.ended(None)
            self._tell(message, WorkerStopped("the worker stops and does not wait any longer"))
            if self._shift.is_first_to_interrupt(message):
                log_interrupted(message, removes=self._sources[message.queue].removes)
            self._end(message, Release(), "released")
        return bool(left)

    # --- the heartbeat --------------------------------------------------------------------------
    def leases(self) -> Held:
        """What the heartbeat has to extend. In its thread."""
        # Read at one go: the foreman goes on meanwhile.
        returned = {id(message) for message in list(self._returned)}
        returned.update(list(self._elsewhere))
        held = [
            message
            for key, message in list(self._shift.held.items())
            if key not in returned and not self._sources[message.queue].removes
        ]
        begun = {id(slot.message) for slot in (*self._shift.left, *self._shift.slots)}
        begun.update(list(self._shift.undone))
        self._begun = begun
        self._asked_for = {message.receipt: message for message in held}
        return Held(
            [message.receipt for message in held if id(message) in begun],
            [message.receipt for message in held if id(message) not in begun],
        )

    def answered(self, receipt: Receipt, answer: LeaseAnswer) -> None:
        """The heartbeat extended a lease, or could not. In its thread."""
        message = self._asked_for[receipt]
        if answer is not LeaseAnswer.HELD:
            self.hear(message, answer)
            self._shift.bell.ring()
        elif id(message) in self._begun and self._holds(message):
            # At once: the foreman may be stuck behind a handler that blocks its loop.
            self._tell_commit(message)

    def lease_timeout(self, receipt: Receipt) -> float:
        """How long a lease of its queue is held at a time."""
        return self._sources[receipt.queue].queue.lease_timeout

    def take_back_if_stuck(self) -> None:
        """Give back what was leased ahead while the foreman cannot. In the heartbeat's thread.

        A handler that blocks the event loop blocks the foreman with it, and everything that waits
        for the handler's end could be run by others.
        """
        shift = self._shift
        before, self._count = self._count, sum([slot.count for slot in shift.slots])
        seen = max(shift.looked_at, shift.given_at)
        if before != self._count or time.monotonic() - seen < STUCK:
            return
        taken = [
            message
            for message in list(shift.pending)
            if not self._sources[message.queue].removes and self._takes_from_pending(message)
        ]
        if not taken:
            return
        receipts = [message.receipt for message in taken]
        try:
            self._sources.store.release_many(receipts, now=self._sources.when.now)
        except StoreError as error:
            log.warning("what waits behind a handler cannot be given back now: %s", error)
            self._taken.extend(taken)
        else:
            self._returned.extend(taken)

    def settle_at_once(self, one: Ended) -> None:
        """Settle what ended, since the foreman cannot. From any thread."""
        settle, key = one.settle, id(one.message)
        if settle is None:
            self._shift.ended.append(one)
            return
        # Before: whoever finds it settled and not here would take its lease for lost.
        self._elsewhere[key] = one
        try:
            answer = self._sources.store.settle(settle, now=self._sources.when.now)
        except BaseException as error:
            self._shift.ended.append(one)
            del self._elsewhere[key]
            if not isinstance(error, StoreError):
                raise
            log.warning("what failed behind a stuck handler cannot be settled now: %s", error)
        else:
            self._failed.append((one, answer))

    def is_settled_elsewhere(self) -> bool:
        """Whether something is being settled without the foreman, or has to be accounted for."""
        return bool(self._elsewhere)

    def hear(self, message: QueueMessage[Any], answer: LeaseAnswer) -> None:
        self._answers.append((message, answer))

    def act_on_answers(self) -> None:
        """Tell handlers that their lease is lost or their message cancelled."""
        while self._failed:
            one, settled = self._failed.popleft()
            if self._holds(one.message):
                self._settling.account_for(one, settled)
            del self._elsewhere[id(one.message)]
        while self._returned:
            self._account_for_returned(self._returned.popleft())
        while self._taken:
            self._pace.ended(None)
            self.give_back([self._taken.popleft()])
        while self._answers:
            message, answer = self._answers.popleft()
            if not self._holds(message) or id(message) in self._elsewhere:
                # Settled, between the question and the answer.
                continue
            if answer is LeaseAnswer.HELD:
                self._tell_commit(message)
            elif answer is LeaseAnswer.CANCEL_ASKED:
                self._cancel(message)
            else:
                self._lose(message)

    def _tell_commit(self, message: QueueMessage[Any]) -> None:
        """Its lease was extended. From any thread."""
        source = self._sources[message.queue]
        commit, seconds = source.commit, source.queue.lease_timeout
        if commit is not None:
            self._aftercare.extend(lambda message: commit.extended(message, seconds), message)

    def _account_for_returned(self, message: QueueMessage[Any]) -> None:
        if not self._holds(message):
            return
        del self._shift.held[id(message)]
        self._pace.ended(None)
        self._shift.counts["returned"] += 1
        announce = self._sources[message.queue].emitter.announce
        if announce is not None:
            announce.settled([message], [Release()], [True])

    def _cancel(self, message: QueueMessage[Any]) -> None:
        if self._takes_from_pending(message):
            self._pace.ended(None)
            self._end(message, Cancel(), "cancelled")
        else:
            self._tell(message, HandlerCancelled("somebody cancelled the message"))

    def _lose(self, message: QueueMessage[Any]) -> None:
        """Someone else may have it: whatever becomes of it here, nothing is written."""
        del self._shift.held[id(message)]
        self._shift.counts["lost"] += 1
        if self._takes_from_pending(message):
            self._pace.ended(None)
            return
        log.warning(
            "message %s of %r: its lease is lost, its handler is told and its result dropped",
            message.id,
            message.queue,
        )
        self._tell(message, LeaseLost("the lease is over; someone else may run the message now"))

    # --- inside ---------------------------------------------------------------------------------
    def _hold(self, message: QueueMessage[Any]) -> None:
        self._shift.held[id(message)] = message

    def _holds(self, message: QueueMessage[Any]) -> bool:
        return id(message) in self._shift.held

    def _takes_from_pending(self, message: QueueMessage[Any]) -> bool:
        """Whether no handler had begun, and none will."""
        try:
            self._shift.pending.remove(message)
        except (ValueError, IndexError):
            # Not there, or a runner took another one in between.
            return False
        return True

    def _tell(self, message: QueueMessage[Any], error: Any) -> None:
        for slot in self._shift.slots:
            if slot.message is message:
                slot.tell(message, error)

    def _end(self, message: QueueMessage[Any], settlement: Settlement, counts_as: str) -> None:
        if self._sources[message.queue].removes:
            # It was removed when it was taken, and nothing can bring it back.
            lost = counts_as if counts_as == "dead" else "lost"
            self._settling.add(Ended(message, None, lost))
            return
        self._settling.add(Ended(message, Settle(message.receipt, settlement), counts_as))
