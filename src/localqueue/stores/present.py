"""A stored message as users see it: its value decoded, its times on the wall clock."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import count
from typing import Any, TypeVar

from localqueue.codec import Codec, decode_headers, decoder
from localqueue.errors import DamagedMessage
from localqueue.message import QueueMessage, Receipt, State
from localqueue.stores.alike import AlikeAnswers
from localqueue.stores.leased import LeasedTogether
from localqueue.stores.protocol import StoredMessage

T = TypeVar("T")


def present(stored: StoredMessage, codec: Codec, drift: float) -> QueueMessage[Any]:
    """The message; ``drift`` is what the wall clock was set away from store time.

    DamagedMessage when the value cannot be decoded. Of a message that is marked as damaged the
    value is None: it can be listed and removed, and is never delivered.
    """
    value = None if stored.damaged else decoder(stored.codec, codec).decode(stored.body)
    return present_value(stored, value, drift)


def present_value(
    stored: StoredMessage, value: T, drift: float, *, dropped: bool = False
) -> QueueMessage[T]:
    """The message with a value that is known already."""
    if drift:
        stored = _moved(stored, drift)
    (
        id_, queue, _, codec, headers, state, attempts, created_at, available_at, leased_until,
        leased_by, last_error, failed_at, history, dedupe_key, priority, ordering_key, expires_at,
        failures, crashes, token, _,
    ) = stored  # fmt: skip
    message: QueueMessage[T] = object.__new__(QueueMessage)
    # The constructor of a frozen dataclass sets field by field; a batch feels that.
    object.__setattr__(
        message,
        "__dict__",
        {
            "id": id_,
            "value": value,
            "queue": queue,
            "state": state,
            "attempts": attempts,
            "created_at": created_at,
            "available_at": available_at,
            "leased_until": leased_until,
            "leased_by": leased_by,
            "last_error": last_error,
            "failed_at": failed_at,
            "attempt_history": history[:],
            "dedupe_key": dedupe_key,
            "priority": priority,
            "headers": decode_headers(headers) if headers else {},
            "ordering_key": ordering_key,
            "expires_at": expires_at,
            "failures": failures,
            "crashes": crashes,
            "codec": codec,
            "duplicate": False,
            "dropped": dropped,
            "token": token,
        },
    )
    return message


def present_alike(
    answers: AlikeAnswers, values: Sequence[T], drift: float
) -> list[QueueMessage[T]]:
    """The messages of a batch: one is made, the others are copies with their own id and value."""
    pattern = present_value(answers.shared, values[0], drift).__dict__
    headers = pattern["headers"]
    messages = []
    for id_, value in zip(answers.ids, values, strict=True):
        fields = pattern.copy()
        fields["id"] = id_
        fields["value"] = value
        fields["attempt_history"] = []
        fields["headers"] = headers.copy()
        message: QueueMessage[T] = object.__new__(QueueMessage)
        object.__setattr__(message, "__dict__", fields)
        messages.append(message)
    return messages


def present_leased(
    leased: Sequence[StoredMessage], codec: Codec, drift: float
) -> tuple[list[QueueMessage[Any]], list[tuple[Receipt, DamagedMessage]]]:
    """The messages that a lease took, and the receipts of those that cannot be decoded."""
    if type(leased) is LeasedTogether:
        # One that cannot be decoded is found below, and the others with it.
        with contextlib.suppress(DamagedMessage):
            return _present_together(leased, codec, drift), []
    messages, damaged = [], []
    for stored in leased:
        try:
            messages.append(present(stored, codec, drift))
        except DamagedMessage as error:
            damaged.append((Receipt(stored.queue, stored.id, stored.token), error))
    return messages, damaged


def _present_together(
    leased: LeasedTogether, codec: Codec, drift: float
) -> list[QueueMessage[Any]]:
    decode = decoder("json", codec).decode
    created, available = leased.created_at, leased.available_at
    (entry,) = leased.history()
    if drift:
        created = [moment + drift for moment in created]
        available = [moment + drift for moment in available]
        entry["at"] += drift
    pattern: dict[str, Any] = {
        "id": "",
        "value": None,
        "queue": leased.queue,
        "state": State.INFLIGHT,
        "attempts": 1,
        "created_at": 0.0,
        "available_at": 0.0,
        "leased_until": leased.until + drift,
        "leased_by": leased.worker,
        "last_error": None,
        "failed_at": None,
        "attempt_history": [],
        "dedupe_key": None,
        "priority": 0,
        "headers": {},
        "ordering_key": None,
        "expires_at": None,
        "failures": 0,
        "crashes": 0,
        "codec": "json",
        "duplicate": False,
        "dropped": False,
        "token": 0,
    }
    messages = []
    for id_, body, rank, created_at, available_at, token in zip(
        leased.ids, leased.bodies, leased.ranks, created, available, count(leased.first_token)
    ):
        fields = pattern.copy()
        fields["id"] = id_
        fields["value"] = decode(body)
        fields["created_at"] = created_at
        fields["available_at"] = available_at
        fields["attempt_history"] = [entry.copy()]
        fields["priority"] = -rank
        fields["headers"] = {}
        fields["token"] = token
        message: QueueMessage[Any] = object.__new__(QueueMessage)
        object.__setattr__(message, "__dict__", fields)
        messages.append(message)
    return messages


def _moved(stored: StoredMessage, drift: float) -> StoredMessage:
    moments = ("created_at", "available_at", "leased_until", "failed_at", "expires_at")
    known = {name: getattr(stored, name) for name in moments}
    return stored._replace(
        history=[{**entry, "at": entry["at"] + drift} for entry in stored.history],
        **{name: moment + drift for name, moment in known.items() if moment is not None},
    )
