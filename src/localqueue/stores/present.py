"""A stored message as users see it: its value decoded, its times on the wall clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from localqueue.codec import Codec, decode_headers, decoder
from localqueue.message import QueueMessage
from localqueue.stores.alike import AlikeAnswers
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


def _moved(stored: StoredMessage, drift: float) -> StoredMessage:
    moments = ("created_at", "available_at", "leased_until", "failed_at", "expires_at")
    known = {name: getattr(stored, name) for name in moments}
    return stored._replace(
        history=[{**entry, "at": entry["at"] + drift} for entry in stored.history],
        **{name: moment + drift for name, moment in known.items() if moment is not None},
    )
