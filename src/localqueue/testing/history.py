"""A history checker: does the journal tell of anything that must never happen?

It reads events alone, so it judges any store, whatever ran on it and however that was killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from localqueue.stores.protocol import JournalEvent

_WAITS = ("ready", "delayed", "held")


class Rule(StrEnum):
    """The sentences that a history keeps."""

    ONE_LEASE = "leases of one message never overlap"
    OWN_LEASE = "what ends or extends a lease has that lease"
    NEXT_ATTEMPT = "each delivery is the next attempt"
    ENDS_ONCE = "what has ended is neither delivered nor ended again"
    ONE_STATE = "each event begins where the one before has left the message"
    NEW_POSITION = "no two events have the same position"


class Violation(NamedTuple):
    """An event that breaks a rule."""

    rule: Rule
    event: JournalEvent
    text: str
    """What is wrong with it, as a sentence."""

    def __str__(self) -> str:
        about = "" if self.event.message_id is None else f" message {self.event.message_id}:"
        return f"{self.event.queue!r}{about} {self.text} (at {self.event.position})"


def check_history(events: Iterable[JournalEvent]) -> list[Violation]:
    """What is wrong with these events; an empty list when nothing is.

    They are those of one store in commit order, of one queue or of several, without gaps: what
    ``journal`` gives from one position to another. A message whose beginning is not among them is
    believed its first event. An event breaks one rule at most; it is believed afterwards, so that
    one defect is not told again by all that follows.
    """
    lives: dict[str, dict[str, _Life]] = {}
    positions: set[str] = set()
    found = []
    for event in events:
        of_queue = lives.setdefault(event.queue, {})
        if event.position in positions:
            found.append(Violation(Rule.NEW_POSITION, event, f"{event.kind} is there twice"))
            continue
        positions.add(event.position)
        if event.message_id is None:
            if event.kind == "purged":
                for purged in of_queue.values():
                    purged.end(event)
            continue
        life = of_queue.get(event.message_id)
        if life is None:
            of_queue[event.message_id] = _Life(event)
            continue
        wrong = life.check(event)
        if wrong is not None:
            found.append(Violation(wrong[0], event, wrong[1]))
        life.follow(event)
    return found


class _Lease(NamedTuple):
    attempt: int | None
    worker: str | None

    def __str__(self) -> str:
        return f"attempt {self.attempt}" + (f" of {self.worker!r}" if self.worker else "")


class _Life:
    """Where a message is, as its events have it so far."""

    def __init__(self, first: JournalEvent) -> None:
        self._attempts = 0 if first.kind == "enqueued" else None
        self._lease: _Lease | None = None
        self._state: str | None = None
        self._ended_by: str | None = None
        self.follow(first)

    def check(self, event: JournalEvent) -> tuple[Rule, str] | None:
        """The rule that this event breaks here, and how."""
        if self._ended_by is not None:
            return Rule.ENDS_ONCE, f"{event.kind} after it was {self._ended_by}"
        if event.kind == "leased":
            wrong = self._check_lease(_Lease(event.attempt, event.worker))
        elif event.from_state == "inflight":
            wrong = self._check_holder(event, _Lease(event.attempt, event.worker))
        else:
            wrong = None
        return wrong or self._check_state(event)

    def follow(self, event: JournalEvent) -> None:
        """Believe it."""
        self._state = event.to_state
        if event.attempt is not None:
            self._attempts = event.attempt
        self._lease = None
        if event.to_state == "inflight":
            self._lease = _Lease(event.attempt, event.worker)
        elif event.to_state is None:
            self.end(event)

    def end(self, event: JournalEvent) -> None:
        """The message is gone."""
        self._ended_by = self._ended_by or event.kind
        self._lease = None

    def _check_lease(self, lease: _Lease) -> tuple[Rule, str] | None:
        if self._lease is not None:
            return Rule.ONE_LEASE, f"leased as {lease} during {self._lease}"
        if self._state == "dead":
            return Rule.ENDS_ONCE, f"leased as {lease} while it was a dead letter"
        if self._attempts is not None and lease.attempt != self._attempts + 1:
            return Rule.NEXT_ATTEMPT, f"leased as {lease} after attempt {self._attempts}"
        return None

    def _check_holder(self, event: JournalEvent, lease: _Lease) -> tuple[Rule, str] | None:
        if self._lease is None:
            return Rule.OWN_LEASE, f"{event.kind} of {lease}, but nobody had it"
        if lease != self._lease:
            return Rule.OWN_LEASE, f"{event.kind} of {lease} during {self._lease}"
        return None

    def _check_state(self, event: JournalEvent) -> tuple[Rule, str] | None:
        before = self._state
        # What becomes due is told for many at once, without their ids.
        if event.from_state == before or (before == "delayed" and event.from_state in _WAITS):
            return None
        return Rule.ONE_STATE, f"{event.kind} from {event.from_state}, but it was {before}"
