"""Settling: from a message, or a bare id, to the receipt that the store is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from localqueue.calls.attachment import Attachment
from localqueue.calls.batches import LARGE
from localqueue.calls.face import Face
from localqueue.calls.in_force import InForce
from localqueue.checks import check_key, check_seconds
from localqueue.errors import InvalidArgument, WrongType
from localqueue.message import QueueMessage, Receipt
from localqueue.outcome import Ack, DeadLetter, Release, describe_error
from localqueue.stores.protocol import Cancelled, LeaseAnswer

Given = QueueMessage[Any] | str
"""A message, or an id: then the caller acts as an operator, on whatever lease there is."""

# A function of Python's own for each of a batch would take longer than to remove its row.
_proof = attrgetter(*Receipt._fields)
_receipt: Callable[[tuple[Any, ...]], Receipt] = partial(tuple.__new__, Receipt)


class Settling:
    """What ack, release, dead_letter, extend, cancel and task_done do."""

    def __init__(self, attachment: Attachment, face: Face, in_force: InForce) -> None:
        self._attachment = attachment
        self._face = face
        self._in_force = in_force
        self._name = attachment.name
        self._emitter = attachment.emitter

    async def ack(self, message: Given) -> bool:
        attachment, face = self._attachment, self._face
        when = attachment.when or await face.open()
        receipts = (self._own(message) or await self.receipt(message),)
        answers = await face.ask(lambda store: store.ack_many(receipts, now=when.now))
        attachment.unfinished.discard(receipts)
        if (announce := self._emitter.announce) is not None:
            announce.settled((message,), (Ack(),), answers, "ack")
        return answers[0]

    async def ack_many(self, messages: Iterable[Given]) -> list[bool]:
        attachment, face = self._attachment, self._face
        when = attachment.when or await face.open()
        given, receipts = list(messages), []
        if not given:
            return []
        if set(map(type, given)) == {QueueMessage}:
            receipts = [*map(_receipt, map(_proof, given))]
        if not receipts or {receipt[0] for receipt in receipts} != {self._name}:
            receipts = [await self.receipt(message) for message in given]
        answers = await face.ask(lambda store: store.ack_many(receipts, now=when.now))
        attachment.unfinished.discard(receipts)
        if (announce := self._emitter.announce) is not None:
            tell = partial(announce.settled, given, [Ack()] * len(given), answers, "ack")
            tell() if len(given) < LARGE else await face.run(tell)
        return answers

    async def release(
        self, message: Given, delay: float, error: BaseException | str | None
    ) -> bool:
        attachment, face = self._attachment, self._face
        when = attachment.when or await face.open()
        receipts = (await self.receipt(message),)
        seconds = check_seconds("delay", delay)
        kept = describe_error(error)
        answers = await face.ask(
            lambda store: store.release_many(receipts, delay=seconds, error=kept, now=when.now)
        )
        attachment.unfinished.discard(receipts)
        if (announce := self._emitter.announce) is not None:
            announce.settled((message,), (Release(seconds, kept),), answers, "release")
        return answers[0]

    async def dead_letter(self, message: Given, error: BaseException | str | None) -> bool:
        attachment, face = self._attachment, self._face
        when = attachment.when or await face.open()
        receipts = (await self.receipt(message),)
        kept = describe_error(error)
        answers = await face.ask(
            lambda store: store.dead_letter_many(receipts, error=kept, now=when.now)
        )
        attachment.unfinished.discard(receipts)
        if (announce := self._emitter.announce) is not None:
            announce.settled((message,), (DeadLetter(kept),), answers, "dead_letter")
        return answers[0]

    async def extend(
        self, message: QueueMessage[Any], timeout: float | None, note: str | None
    ) -> LeaseAnswer:
        attachment, face = self._attachment, self._face
        when = attachment.when or await face.open()
        seconds = attachment.policies.lease_timeout if timeout is None else timeout
        seconds = check_seconds("timeout", seconds, zero=False)
        if note is not None:
            check_key("note", note)
        receipts = (await self.receipt(message),)
        answers = await face.ask(
            lambda store: store.extend(receipts, timeout=seconds, note=note, now=when.now)
        )
        if (announce := self._emitter.announce) is not None:
            announce.extended(message, answers[0])
        return answers[0]

    async def cancel(self, message: Given) -> Cancelled:
        attachment, face = self._attachment, self._face
        when = attachment.when or await face.open()
        receipt = queue, message_id, _ = await self.receipt(message)
        answer = await face.ask(lambda store: store.cancel(queue, message_id, now=when.now))
        if (announce := self._emitter.announce) is not None:
            announce.cancelled(receipt, answer)
        return answer

    async def task_done(self) -> None:
        unfinished = self._attachment.unfinished
        message = unfinished.claim(self._face.caller())
        if message is None:
            raise InvalidArgument("task_done() called too many times")
        try:
            await self.ack(message)
        except BaseException:
            unfinished.give_back(message)
            raise

    async def receipt(self, message: Given) -> Receipt:
        """The proof to act with; InvalidArgument when the message is none of this queue's."""
        if isinstance(message, str):
            return Receipt(self._name, checked_id(message), None)
        if not isinstance(message, QueueMessage):
            raise WrongType(f"expected a message or its id, not {type(message).__name__}")
        return self._own(message) or await self._elsewhere(message)

    def _own(self, message: Given) -> Receipt | None:
        if isinstance(message, QueueMessage) and message.queue == self._name:
            return Receipt(message.queue, message.id, message.token)
        return None

    async def _elsewhere(self, message: QueueMessage[Any]) -> Receipt:
        """A message that this queue's settings sent to another one."""
        in_force = await self._in_force.known()
        if in_force.overflow == "overflow" or (
            in_force.fanout is not None and message.queue.startswith(f"{self._name}.")
        ):
            return message.receipt
        raise InvalidArgument(
            f"message {message.id} belongs to queue {message.queue!r}, not to {self._name!r}"
        )


def checked_id(message_id: object) -> str:
    if not isinstance(message_id, str):
        raise WrongType(f"a message id is a string, not {type(message_id).__name__}")
    # An id that is no text belongs to no message; SQLite would not take it.
    return message_id if message_id.isascii() else ""
