"""A stored message as users see it: its value decoded, its times on the wall clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, TypeVar

from localqueue.codec import Codec, JsonCodec, decode_headers, decoder
from localqueue.errors import DamagedMessage
from localqueue.message import LEASED_AT, QueueMessage, Receipt, State, with_fields
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
    own: dict[str, Any] = {
        "id": id_,
        "value": value,
        "queue": queue,
        "created_at": created_at,
        "available_at": available_at,
    }
    if headers:
        own["headers"] = decode_headers(headers)
    if priority:
        own["priority"] = priority
    if codec != "json":
        own["codec"] = codec
    if dropped:
        own["dropped"] = True
    if expires_at is not None:
        own["expires_at"] = expires_at
    if dedupe_key is not None:
        own["dedupe_key"] = dedupe_key
    if ordering_key is not None:
        own["ordering_key"] = ordering_key
    if state is not State.READY or attempts or history or token or last_error or failed_at:
        own |= {
            "state": state,
            "attempts": attempts,
            "leased_until": leased_until,
            "leased_by": leased_by,
            "last_error": last_error,
            "failed_at": failed_at,
            "attempt_history": history[:],
            "failures": failures,
            "crashes": crashes,
            "token": token,
        }
    return with_fields(own)


def present_alike(
    answers: AlikeAnswers, values: Sequence[T], drift: float
) -> list[QueueMessage[T]]:
    """The messages of a batch: one is made, the others are copies with their own id and value."""
    pattern = present_value(answers.shared, values[0], drift).__dict__
    headers = pattern.pop("headers", None)
    messages = []
    for id_, value in zip(answers.ids, values, strict=True):
        own = pattern.copy()
        own["id"] = id_
        own["value"] = value
        if headers is not None:
            own["headers"] = headers.copy()
        messages.append(with_fields(own))
    return messages


def present_leased(
    leased: Sequence[StoredMessage], codec: Codec, drift: float
) -> tuple[list[QueueMessage[Any]], list[tuple[Receipt, DamagedMessage]]]:
    """The messages that a lease took, and the receipts of those that cannot be decoded."""
    if type(leased) is LeasedTogether:
        together = _present_together(leased, codec, drift)
        if together is not None:
            return together, []
    messages, damaged = [], []
    for stored in leased:
        try:
            messages.append(present(stored, codec, drift))
        except DamagedMessage as error:
            damaged.append((Receipt(stored.queue, stored.id, stored.token), error))
    return messages, damaged


def _present_together(
    leased: LeasedTogether, codec: Codec, drift: float
) -> list[QueueMessage[Any]] | None:
    """None when one of them cannot be decoded."""
    json, bodies = decoder("json", codec), leased.bodies
    try:
        if type(json) is JsonCodec and len(bodies) > 1:
            values = json.decode_many(bodies)
        else:
            values = [json.decode(body) for body in bodies]
    except DamagedMessage:
        return None
    created, available = leased.created_at, leased.available_at
    if drift:
        created = [moment + drift for moment in created]
        available = [moment + drift for moment in available]
    pattern = _first_delivery(leased, drift)
    messages = []
    for id_, value, rank, created_at, available_at, token in zip(
        leased.ids, values, leased.ranks, created, available, count(leased.first_token)
    ):
        own = pattern.copy()
        own["id"] = id_
        own["value"] = value
        own["created_at"] = created_at
        own["available_at"] = available_at
        own["token"] = token
        if rank:
            own["priority"] = -rank
        messages.append(with_fields(own))
    return messages


def present_only(leased: LeasedTogether, codec: Codec, drift: float) -> QueueMessage[Any] | None:
    """The only message of a lease; None when it cannot be decoded. Most leases are of one."""
    try:
        value = decoder("json", codec).decode(leased.bodies[0])
    except DamagedMessage:
        return None
    own = _first_delivery(leased, drift)
    own["id"] = leased.ids[0]
    own["value"] = value
    own["created_at"] = leased.created_at[0] + drift
    own["available_at"] = leased.available_at[0] + drift
    own["token"] = leased.first_token
    if rank := leased.ranks[0]:
        own["priority"] = -rank
    return with_fields(own)


def _first_delivery(leased: LeasedTogether, drift: float) -> dict[str, Any]:
    """The fields that all have in common, with room for those that each has for itself.

    A copy of it takes less than half the time of making all of them anew.
    """
    pattern = {
        "id": "",
        "value": None,
        "queue": leased.queue,
        "state": State.INFLIGHT,
        "attempts": 1,
        "created_at": 0.0,
        "available_at": 0.0,
        "leased_until": leased.until + drift,
        "token": 0,
        LEASED_AT: leased.leased_at + drift,
    }
    if leased.worker is not None:
        pattern["leased_by"] = leased.worker
    return pattern


def _moved(stored: StoredMessage, drift: float) -> StoredMessage:
    moments = ("created_at", "available_at", "leased_until", "failed_at", "expires_at")
    known = {name: getattr(stored, name) for name in moments}
    return stored._replace(
        history=[{**entry, "at": entry["at"] + drift} for entry in stored.history],
        **{name: moment + drift for name, moment in known.items() if moment is not None},
    )
