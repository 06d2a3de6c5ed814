"""What a queue object tells its listeners, a class for each kind of event.

An event is told after it is durable, by the object whose call caused it. What other processes do,
and what a store does by itself (promotions, time to live, the crash limit), is in the journal and
not here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened to a message. Times are those of ``time.time()``, durations seconds."""

    kind: ClassVar[str] = "event"

    queue: str
    """Where the message is: of a topic, the subscriber's queue."""
    at: float
    message_id: str | None = None
    """None where the event is about the whole queue."""
    attempt: int | None = None
    """The delivery it belongs to; None before the first, and when only an id was given."""
    worker: str | None = None
    """Who has the lease, as far as it has a name."""

    def as_dict(self) -> dict[str, Any]:
        """The kind, as ``event``, and what is known of the fields."""
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"event": self.kind} | {
            name: value for name, value in known.items() if value is not None
        }


# --- putting ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued(Event):
    """A put stored a message; a topic tells it once for each subscriber."""

    kind: ClassVar[str] = "enqueued"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicated(Event):
    """A put found its key taken and stored nothing; ``message_id`` is the message that has it."""

    kind: ClassVar[str] = "duplicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped(Event):
    """A put found the queue full, and its policy let go of the message."""

    kind: ClassVar[str] = "dropped"


# --- delivery -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Leased(Event):
    """A message was handed out."""

    kind: ClassVar[str] = "leased"

    waited: float | None = None
    """Since it could have been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExpired(Event):
    """The delivery before this one was never settled; told with the ``leased`` that follows."""

    kind: ClassVar[str] = "lease_expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked(Event):
    """Settled and removed."""

    kind: ClassVar[str] = "acked"

    ran: float | None = None
    """Since the lease; the same on the other events that end one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Event):
    """Given back without an error."""

    kind: ClassVar[str] = "released"

    ran: float | None = None
    delay: float = 0.0
    """Until it may be delivered again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(Event):
    """Given back with an error: a failure is charged, and it is delivered again. Or it is tried
    again inside of its lease, and ``ran`` is not known.
    """

    kind: ClassVar[str] = "retried"

    ran: float | None = None
    delay: float = 0.0
    error_type: str | None = None
    """The name of the error's class; None when only a text was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(Event):
    """Taken out of delivery: given up, damaged, or put into a queue that was full."""

    kind: ClassVar[str] = "dead_lettered"

    ran: float | None = None
    error_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed(Event):
    """What ran the handler died; delivered again, or a dead letter at the queue's crash limit."""

    kind: ClassVar[str] = "crashed"

    ran: float | None = None
    error_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleReceipt(Event):
    """A settlement or an extension came too late: the lease was over, and nothing was changed."""

    kind: ClassVar[str] = "stale_receipt"

    call: str
    """``ack``, ``release``, ``dead_letter``, ``settle`` or ``extend``."""


# --- what people do -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued(Event):
    """A dead letter was put back."""

    kind: ClassVar[str] = "requeued"

    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Event):
    """A waiting message was removed, or the holder of a leased one was asked to stop."""

    kind: ClassVar[str] = "cancelled"

    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged(Event):
    """Everything was removed."""

    kind: ClassVar[str] = "purged"

    n: int
    """How many messages that were."""


# --- what is called -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Notified(Event):
    """The notification policy was told of a stored message."""

    kind: ClassVar[str] = "notified"

    took: float
    error_type: str | None = None
    """What it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched(Event):
    """The dispatch policy was given a message."""

    kind: ClassVar[str] = "dispatched"

    took: float
    error_type: str | None = None
    """What it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerStarted(Event):
    """A handler begins."""

    kind: ClassVar[str] = "handler_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerEnded(Event):
    """A handler returned or raised; the message is not settled yet."""

    kind: ClassVar[str] = "handler_ended"

    took: float
    error_type: str | None = None
    """What it raised; None when it returned."""


EVENTS: tuple[type[Event], ...] = (
    Enqueued,
    Duplicated,
    Dropped,
    Leased,
    LeaseExpired,
    Acked,
    Released,
    Retried,
    DeadLettered,
    Crashed,
    StaleReceipt,
    Requeued,
    Cancelled,
    Purged,
    Notified,
    Dispatched,
    HandlerStarted,
    HandlerEnded,
)
"""Every kind there is."""
