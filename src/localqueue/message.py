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
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

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
        shown = {name: getattr(self, name) for name in _SHOWN}
        shown["state"] = str(self.state)
        shown["headers"] = dict(self.headers)
        return shown

    if not TYPE_CHECKING:  # or a checker would believe in any field

        def __getattr__(self, name: str) -> Any:
            """What ``with_fields`` left out; made when somebody looks."""
            own = self.__dict__
            if name == "headers":
                made: Any = {}
            elif name == "attempt_history":
                at = own.get(LEASED_AT)
                made = [] if at is None else [leased_entry(at, self.attempts, self.leased_by)]
            else:
                raise AttributeError(f"a QueueMessage has no {name!r}", name=name, obj=self)
            own[name] = made
            return made


_SHOWN = tuple(each.name for each in fields(QueueMessage) if each.name != "token")
_new, _set = object.__new__, object.__setattr__
LEASED_AT = "_leased_at"
"""Stands for a history that has only this lease."""


def with_fields(own: dict[str, Any]) -> QueueMessage[Any]:
    """A message with these fields, which become its own; the others have their default.

    The constructor sets all of them, one by one: a batch would feel that as much as its statements.
    """
    message: QueueMessage[Any] = _new(QueueMessage)
    _set(message, "__dict__", own)
    return message


def leased_entry(at: float, attempt: int, worker: str | None) -> dict[str, Any]:
    """A lease as the attempt history shows it."""
    entry: dict[str, Any] = {"type": "leased", "at": at, "attempt": attempt}
    if worker is not None:
        entry["leased_by"] = worker
    return entry


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
