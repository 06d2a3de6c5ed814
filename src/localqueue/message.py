"""A message, the picture of its life, and the proof of a lease.

    put ──▶ READY ──lease──▶ INFLIGHT ──ack──▶ (gone)
              ▲                 │  │
              ├──release, lease expiry, boot
              │                    └──dead_letter──▶ DEAD ──prune──▶ (gone)
              └───────────────requeue──────────────────┘

A message that waits for its time or behind its ordering key is READY too, with ``available_at`` in
the future or with others of its key before it. Expiry and cancel take a waiting message out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class State(StrEnum):
    """Where a message is in its life."""

    READY = "ready"
    INFLIGHT = "inflight"
    DEAD = "dead"


NEVER_LEASED = 0
"""The token of a message object that never had a lease, as ``put`` returns it."""


class Receipt(NamedTuple):
    """Proof of a lease: the message and the number of the delivery.

    ``token`` grows with each delivery, so an older receipt is recognised. ``NEVER_LEASED`` acts
    only while nobody holds a lease; ``None`` is an operator's: it acts on whatever lease there is.
    """

    queue: str
    id: str
    token: int | None


@dataclass(frozen=True)
class QueueMessage(Generic[T]):
    """One message as it was when the call returned. ``receipt`` proves the lease it came with.

    Times are seconds of ``time.time()``.
    """

    id: str
    value: T
    queue: str
    state: str = State.READY
    attempts: int = 0
    created_at: float = 0.0
    available_at: float = 0.0
    leased_until: float | None = None
    leased_by: str | None = None
    last_error: dict[str, Any] | None = None
    failed_at: float | None = None
    attempt_history: list[dict[str, Any]] = field(default_factory=list)
    dedupe_key: str | None = None
    priority: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str | None = None
    expires_at: float | None = None
    failures: int = 0
    crashes: int = 0
    codec: str = "json"
    duplicate: bool = False
    """put found the key taken: this is the message that already has it."""
    dropped: bool = False
    """put found the queue full and its policy let go of this message: it is not stored."""
    token: int | None = field(default=NEVER_LEASED, repr=False)

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.queue, self.id, self.token)

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, without the proof of the lease."""
        fields = dict(self.__dict__)
        del fields["token"]
        fields["state"] = str(self.state)
        fields["headers"] = dict(self.headers)
        return fields


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What a queue holds, counted without reading the backlog."""

    ready: int = 0
    delayed: int = 0
    """Waiting, but not deliverable now: before its time, or behind its ordering key (``held``)."""
    inflight: int = 0
    dead: int = 0
    total: int = 0
    by_worker_id: dict[str, int] = field(default_factory=dict)
    leases_by_worker_id: dict[str, int] = field(default_factory=dict)
    last_seen_by_worker_id: dict[str, float] = field(default_factory=dict)
    oldest_ready_age_seconds: float | None = None
    oldest_inflight_age_seconds: float | None = None
    average_inflight_age_seconds: float | None = None
    held: int = 0

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        if not self.held:
            del fields["held"]
        return fields
