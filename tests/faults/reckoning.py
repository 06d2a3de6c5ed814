"""What workers were answered, held against the journal of the file they worked on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.faults.oracle import Entry
from tests.faults.soundness import (
    ACKED,
    DEAD_LETTERED,
    ENQUEUED,
    LEASE_EXPIRED,
    LEASED,
    RELEASED,
    Contents,
    Event,
    number_of,
)

ENDS = {"ack": ACKED, "release": RELEASED, "dead_letter": DEAD_LETTERED}


class Broken(AssertionError):
    """An answer was given that the file does not keep."""


class Reckoning:
    """Every answer has its event; the file is one that ``check_file`` found sound."""

    def __init__(self, entries: Iterable[Entry], contents: Contents) -> None:
        self.answers: Counter[str] = Counter()
        self._events = contents.events
        # The event after a lease ends it: nobody extends one here.
        self._next = {event.prev: event for event in contents.events if event.prev is not None}
        self._entries = list(entries)
        for entry in self._entries:
            if entry.when == "answered":
                self.answers[entry.verb] += 1
                self._check_answer(entry)

    def check_leases(self, seconds: float) -> None:
        """No lease ended before its time, so that no two of a message were held at once."""
        for event in self._events:
            if event.kind == LEASE_EXPIRED:
                assert event.leased_at is not None
                if event.at < event.leased_at + seconds - 1e-6:
                    raise Broken(f"{event} ended a lease that was held until later")

    def check_values(self, left: list[tuple[str, Any]]) -> None:
        """Each message that is left is what was put; nothing came twice, no batch came in part."""
        seen = dict(left)
        for entry in self._entries:
            if entry.verb == "get":
                seen |= {id: value for id, _, value in entry.what[0]}
        values = Counter(repr(value) for value in seen.values())
        if values and values.most_common(1)[0][1] > 1:
            raise Broken(f"two messages have the value {values.most_common(1)}")
        for entry in self._entries:
            if entry.verb == "put" and entry.when == "answered":
                for id, value in entry.what[0]:
                    if seen.get(id) != value:
                        raise Broken(f"{value} was answered as {id}, which is {seen.get(id)}")
            elif entry.verb == "put":
                stored = [repr(value) in values for value in entry.what[0]]
                if any(stored) and not all(stored):
                    raise Broken(f"of the batch {entry.what[0]} only a part is there")

    def _check_answer(self, entry: Entry) -> None:
        if entry.verb == "put":
            for id, _ in entry.what[0]:
                self._check_event(entry, number_of(id), number_of(id), ENQUEUED)
        elif entry.verb == "get":
            for id, token, _ in entry.what[0]:
                self._check_event(entry, token, number_of(id), LEASED)
        else:
            for (id, token), answer in zip(*entry.what, strict=True):
                end = self._next.get(token)
                wanted = ENDS[entry.verb] if answer else LEASE_EXPIRED
                if end is None or (end.message, end.kind) != (number_of(id), wanted):
                    raise Broken(f"{entry.verb} of {id} was answered {answer}, not so by {end}")

    def _check_event(self, entry: Entry, seq: int, message: int, kind: int) -> None:
        event: Event | None = self._events[seq - 1] if seq <= len(self._events) else None
        if event is None or (event.message, event.kind) != (message, kind):
            raise Broken(f"{entry.verb} was answered {entry.what}, and {event} is there instead")
