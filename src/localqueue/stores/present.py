"""A stored message as users see it: its value decoded, its times on the wall clock."""

from __future__ import annotations

from typing import Any

from localqueue.codec import Codec, decode_headers, decoder
from localqueue.message import QueueMessage
from localqueue.stores.protocol import StoredMessage


def present(
    stored: StoredMessage,
    codec: Codec,
    drift: float,
    *,
    duplicate: bool = False,
    dropped: bool = False,
) -> QueueMessage[Any]:
    """The message; ``drift`` is what the wall clock was set away from store time.

    DamagedMessage when the value cannot be decoded. Of a message that is marked as damaged the value
    is None: it can be listed and removed, and is never delivered.
    """
    value = None if stored.damaged else decoder(stored.codec, codec).decode(stored.body)
    history = stored.history
    if drift and history:
        history = [{**entry, "at": entry["at"] + drift} for entry in history]
    return QueueMessage(
        stored.id,
        value,
        stored.queue,
        stored.state,
        stored.attempts,
        stored.created_at + drift,
        stored.available_at + drift,
        _moved(stored.leased_until, drift),
        stored.leased_by,
        stored.last_error,
        _moved(stored.failed_at, drift),
        history,
        stored.dedupe_key,
        stored.priority,
        decode_headers(stored.headers),
        stored.ordering_key,
        _moved(stored.expires_at, drift),
        stored.failures,
        stored.crashes,
        stored.codec,
        duplicate,
        dropped,
        stored.token,
    )


def _moved(moment: float | None, drift: float) -> float | None:
    return None if moment is None else moment + drift
