"""What a worker holds: given to runners, given back, cancelled, lost."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from localqueue.commits.protocol import Commit
from localqueue.errors import HandlerCancelled, LeaseLost, WorkerStopped
from localqueue.message import QueueMessage, Receipt
from localqueue.outcome import Cancel, DeadLetter, Release, Settlement, describe_error
from localqueue.stores.leased import size_of
from localqueue.stores.present import present_leased
from localqueue.stores.protocol import LeaseAnswer, Settle, StoredMessage
from localqueue.workers.aftercare import Aftercare, Care
from localqueue.workers.driver import Ask
from localqueue.workers.heartbeat import Held
from localqueue.workers.settling import Settling
from localqueue.workers.shift import Ended, Shift
from localqueue.workers.source import Group, Sources

log = logging.getLogger("localqueue.workers")

LARGE_BYTES = 256 * 1024
"""From so many on, decoding is not done on the loop."""


class Holding:
    """The leases of a shift. For the foreman, but for what the heartbeat asks and answers."""

    def __init__(
        self,
        shift: Shift,
        sources: Sources,
        ask: Ask,
        settling: Settling,
        aftercare: Aftercare,
    ) -> None:
        self._shift = shift
        self._sources = sources
        self._ask = ask
        self._settling = settling
        self._aftercare = aftercare
        self._answers: deque[tuple[QueueMessage[Any], LeaseAnswer]] = deque()
        self._asked_for: dict[Receipt, QueueMessage[Any]] = {}

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
        """All that was leased ahead."""
        while True:
            try:
                message = self._shift.pending.pop()
            except IndexError:
                return
            self.give_back([message])

    def take_back_running(self) -> bool:
        """Nobody waits any longer for what runs: it goes back, uncharged. Whether anything did."""
        ended = self._settling.known()
        left = [m for key, m in self._shift.held.items() if key not in ended]
        for message in left:
            self._tell(message, WorkerStopped("the worker stops and does not wait any longer"))
            log.warning(
                "message %s of %r was running when the worker stopped, and is given back",
                message.id,
                message.queue,
            )
            self._end(message, Release(), "released")
        return bool(left)

    # --- the heartbeat --------------------------------------------------------------------------
    def leases(self) -> Held:
        """What the heartbeat has to extend. In its thread."""
        # Read at one go: the foreman goes on meanwhile.
        held = [m for m in list(self._shift.held.values()) if not self._sources[m.queue].removes]
        begun = {id(slot.message) for slot in self._shift.slots}
        self._asked_for = {message.receipt: message for message in held}
        return Held(
            [message.receipt for message in held if id(message) in begun],
            [message.receipt for message in held if id(message) not in begun],
        )

    def answered(self, receipt: Receipt, answer: LeaseAnswer) -> None:
        """The heartbeat extended a lease, or could not. In its thread."""
        self.hear(self._asked_for[receipt], answer)
        if answer is not LeaseAnswer.HELD:
            self._shift.bell.ring()

    def hear(self, message: QueueMessage[Any], answer: LeaseAnswer) -> None:
        self._answers.append((message, answer))

    def act_on_answers(self) -> None:
        """Tell handlers that their lease is lost or their message cancelled."""
        while self._answers:
            message, answer = self._answers.popleft()
            if not self._holds(message):
                # Settled, between the question and the answer.
                continue
            if answer is LeaseAnswer.HELD:
                commit = self._sources[message.queue].commit
                if commit is not None:
                    self._aftercare.start(self._telling_of_extension(commit), message)
            elif answer is LeaseAnswer.CANCEL_ASKED:
                self._cancel(message)
            else:
                self._lose(message)

    def _telling_of_extension(self, commit: Commit) -> Care:
        seconds = self._sources.lease_timeout
        return lambda message: commit.extended(message, seconds)

    def _cancel(self, message: QueueMessage[Any]) -> None:
        if self._takes_from_pending(message):
            self._end(message, Cancel(), "cancelled")
        else:
            self._tell(message, HandlerCancelled("somebody cancelled the message"))

    def _lose(self, message: QueueMessage[Any]) -> None:
        """Someone else may have it: whatever becomes of it here, nothing is written."""
        del self._shift.held[id(message)]
        self._shift.counts["lost"] += 1
        if self._takes_from_pending(message):
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
