"""Makes the events of a call, from what the store answered, and tells them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from localqueue.message import NEVER_LEASED, QueueMessage, Receipt, State
from localqueue.outcome import Ack, Cancel, Crashed, DeadLetter, Release, Settlement
from localqueue.stores import protocol
from localqueue.stores.alike import AlikeAnswers
from localqueue.stores.protocol import Fate, LeaseAnswer, Settled, StoredMessage
from localqueue.telemetry import events
from localqueue.telemetry.events import (
    Acked,
    DeadLettered,
    Dispatched,
    Dropped,
    Duplicated,
    Enqueued,
    Event,
    HandlerEnded,
    HandlerStarted,
    Leased,
    LeaseExpired,
    Notified,
    Purged,
    Released,
    Requeued,
    Retried,
    StaleReceipt,
)

if TYPE_CHECKING:
    from localqueue.telemetry.emitter import Emitter

Given = QueueMessage[Any] | str
"""A message, or an operator's bare id."""


class Announcer:
    """Tells what happened; each method is called once, after the store has answered."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._moment = emitter.moment

    # --- putting --------------------------------------------------------------------------------
    def enqueued(
        self, answers: Sequence[protocol.Enqueued], messages: Sequence[QueueMessage[Any]]
    ) -> None:
        """What became of the puts of one call."""
        at = self._moment()
        told: list[Event] = []
        if type(answers) is AlikeAnswers:
            told = [Enqueued(queue=one.queue, at=at, message_id=one.id) for one in messages]
        else:
            for answer, message in zip(answers, messages, strict=True):
                told += _put(answer, message, at)
        self._emitter.emit(told)

    def notified(
        self, message: QueueMessage[Any], took: float, error: BaseException | None
    ) -> None:
        self._emitter.emit(
            (Notified(**self._about(message), took=took, error_type=_type_name(error)),)
        )

    def dispatched(
        self, message: QueueMessage[Any], took: float, error: BaseException | None
    ) -> None:
        self._emitter.emit(
            (Dispatched(**self._about(message), took=took, error_type=_type_name(error)),)
        )

    # --- delivery -------------------------------------------------------------------------------
    def leased(self, messages: Sequence[QueueMessage[Any]], *, removed: bool = False) -> None:
        """These were handed out; ``removed`` when that already settled them, at most once."""
        at = self._moment()
        told: list[Event] = []
        for message in messages:
            about = _about(message, at)
            if (expired := _expired_before(message)) is not None:
                attempt, worker = expired
                told.append(LeaseExpired(**about | {"attempt": attempt, "worker": worker}))
            told.append(Leased(**about, waited=max(0.0, at - message.available_at)))
            if removed:
                told.append(Acked(**about, ran=0.0))
        self._emitter.emit(told)

    def damaged(self, receipt: Receipt, error: BaseException) -> None:
        """One that could not be decoded was made a dead letter instead of being handed out."""
        self._emitter.emit(
            (DeadLettered(**self._about_receipt(receipt), error_type=_type_name(error)),)
        )

    def given_back(self, leased: Iterable[StoredMessage]) -> None:
        """What was leased for somebody who is gone."""
        at = self._moment()
        self._emitter.emit(
            [
                Released(
                    queue=one.queue,
                    at=at,
                    message_id=one.id,
                    attempt=one.attempts,
                    worker=one.leased_by,
                )
                for one in leased
            ]
        )

    # --- settling -------------------------------------------------------------------------------
    def settled(
        self,
        given: Iterable[Given],
        settlements: Iterable[Settlement],
        answers: Iterable[bool | Settled],
        call: str = "settle",
    ) -> None:
        """How leases ended, or that they were over: one settlement and one answer for each.

        The answers are those of the store; one that was refused for its records is no event.
        """
        at = self._moment()
        told: list[Event] = []
        for message, settlement, answer in zip(given, settlements, answers, strict=True):
            if answer in (True, Settled.DONE):
                told.append(_settled(message, settlement, self._about(message, at)))
            elif answer in (False, Settled.STALE) and _had_a_lease(message):
                told.append(StaleReceipt(**self._about(message, at), call=call))
        self._emitter.emit(told)

    def tried(
        self, message: QueueMessage[Any], delay: float, error: Mapping[str, Any] | None
    ) -> None:
        """A try inside of the lease failed, and another one follows after ``delay`` seconds."""
        self._emitter.emit(
            (Retried(**self._about(message), delay=delay, error_type=_kept_type(error)),)
        )

    def extended(self, message: QueueMessage[Any], answer: LeaseAnswer) -> None:
        """Only that a lease is lost is an event; that it is held happens all the time."""
        if answer is LeaseAnswer.LOST and _had_a_lease(message):
            self._emitter.emit((StaleReceipt(**self._about(message), call="extend"),))

    # --- what people do -------------------------------------------------------------------------
    def cancelled(self, receipt: Receipt, answer: protocol.Cancelled) -> None:
        if answer:
            removed = answer is protocol.Cancelled.REMOVED
            self._emitter.emit((events.Cancelled(**self._about_receipt(receipt), removed=removed),))

    def requeued(self, receipts: Iterable[Receipt], delay: float) -> None:
        told = [Requeued(**self._about_receipt(receipt), delay=delay) for receipt in receipts]
        self._emitter.emit(told)

    def purged(self, n: int) -> None:
        self._emitter.emit((Purged(queue=self._emitter.queue, at=self._moment(), n=n),))

    # --- handlers -------------------------------------------------------------------------------
    def handler_started(self, message: QueueMessage[Any], worker: str | None) -> None:
        self._emitter.emit((HandlerStarted(**self._about(message) | {"worker": worker}),))

    def handler_ended(
        self,
        message: QueueMessage[Any],
        worker: str | None,
        took: float,
        error: BaseException | None,
    ) -> None:
        about = self._about(message) | {"worker": worker}
        self._emitter.emit((HandlerEnded(**about, took=took, error_type=_type_name(error)),))

    # --- inside ---------------------------------------------------------------------------------
    def _about(self, given: Given, at: float | None = None) -> dict[str, Any]:
        moment = self._moment() if at is None else at
        if isinstance(given, str):
            return {"queue": self._emitter.queue, "at": moment, "message_id": given}
        return _about(given, moment)

    def _about_receipt(self, receipt: Receipt) -> dict[str, Any]:
        return {"queue": receipt.queue, "at": self._moment(), "message_id": receipt.id}


def _about(message: QueueMessage[Any], at: float) -> dict[str, Any]:
    return {
        "queue": message.queue,
        "at": at,
        "message_id": message.id,
        "attempt": message.attempts or None,
        "worker": message.leased_by,
    }


def _put(answer: protocol.Enqueued, message: QueueMessage[Any], at: float) -> list[Event]:
    if answer.fate is Fate.DUPLICATE:
        return [Duplicated(queue=message.queue, at=at, message_id=message.id)]
    if answer.fate is Fate.DROPPED:
        return [Dropped(queue=message.queue, at=at, message_id=message.id)]
    told: list[Event] = []
    for stored in answer.copies or (answer.message,):
        about: dict[str, Any] = {"queue": stored.queue, "at": at, "message_id": stored.id}
        told.append(Enqueued(**about))
        if stored.state == State.DEAD:
            # The queue was full, and its policy keeps the rest among the dead letters.
            told.append(DeadLettered(**about, error_type=_kept_type(stored.last_error)))
    return told


def _settled(given: Given, settlement: Settlement, about: dict[str, Any]) -> Event:
    ran = None if isinstance(given, str) else _since_the_lease(given, about["at"])
    match settlement:
        case Ack():
            return Acked(**about, ran=ran)
        case Release(delay, None):
            return Released(**about, ran=ran, delay=delay)
        case Release(delay, error):
            return Retried(**about, ran=ran, delay=delay, error_type=_kept_type(error))
        case DeadLetter(error):
            return DeadLettered(**about, ran=ran, error_type=_kept_type(error))
        case Crashed(error):
            return events.Crashed(**about, ran=ran, error_type=_kept_type(error))
        case Cancel():
            return events.Cancelled(**about, removed=True)


def _had_a_lease(given: Given) -> bool:
    """An operator's id that is unknown, or a message fresh from put, had none to lose."""
    return not isinstance(given, str) and given.token not in (None, NEVER_LEASED)


def _since_the_lease(message: QueueMessage[Any], at: float) -> float | None:
    for entry in reversed(message.attempt_history):
        if entry.get("type") == "leased" and "at" in entry:
            return max(0.0, at - float(entry["at"]))
    return None


def _expired_before(message: QueueMessage[Any]) -> tuple[int | None, str | None] | None:
    """The attempt and the worker of the delivery before, if nobody settled that."""
    if message.attempts < 2 or len(message.attempt_history) < 2:
        return None
    before = message.attempt_history[-2]
    if before.get("type") != "lease_expired":
        return None
    return before.get("attempt"), before.get("leased_by")


def _type_name(error: BaseException | None) -> str | None:
    return None if error is None else type(error).__name__


def _kept_type(error: Mapping[str, Any] | None) -> str | None:
    return None if error is None else error.get("type")
