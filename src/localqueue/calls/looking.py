"""What is shown to somebody who looks, and leases nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from localqueue.codec import Codec
from localqueue.errors import DamagedMessage
from localqueue.message import QueueMessage
from localqueue.stores.present import present
from localqueue.stores.protocol import JournalEvent, StoredMessage


def shown(stored: StoredMessage, codec: Codec, drift: float) -> QueueMessage[Any]:
    """The message; a value that cannot be decoded is shown as None."""
    try:
        return present(stored, codec, drift)
    except DamagedMessage:
        return present(stored._replace(damaged=True), codec, drift)


def on_the_wall(events: Iterable[JournalEvent], drift: float) -> list[JournalEvent]:
    """Events with the times of the wall clock."""
    if not drift:
        return list(events)
    return [
        event._replace(
            at=event.at + drift,
            enqueued_at=None if event.enqueued_at is None else event.enqueued_at + drift,
            leased_at=None if event.leased_at is None else event.leased_at + drift,
        )
        for event in events
    ]
