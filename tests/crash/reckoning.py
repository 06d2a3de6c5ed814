"""The diary of the workers, held against the journal of the store they worked on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from localqueue.stores.protocol import JournalEvent, QueueStore
from localqueue.testing import check_history
from tests.crash.diary import Entry

CLOSES = ("acked", "released", "lease_expired", "dead_lettered", "expired", "cancelled")


class Broken(AssertionError):
    """Something happened that workers promise not to let happen."""


def read_journal(store: QueueStore, queue: str = "jobs") -> list[JournalEvent]:
    events: list[JournalEvent] = []
    while page := store.journal([queue], after=events[-1].position if events else None):
        events += page
    return events


class Reckoning:
    """What was put, done and written down."""

    def __init__(
        self, put: Collection[str], diary: Sequence[Entry], events: Sequence[JournalEvent]
    ) -> None:
        self._put = put
        self._diary = diary
        self._events = events
        self.done = Counter((entry.id, entry.attempt) for entry in diary if entry.what == "did")
        self.charged = max_charges(diary)
        self.ended_leases = sum(event.kind == "lease_expired" for event in events)

    def check(self, killed: Collection[str]) -> None:
        """Everything that holds whenever workers are killed; ``killed`` are their names."""
        self.check_history()
        self.check_ends_of_leases(killed)
        # Before what it may lead to: who is charged too often is set aside.
        self.check_charges()
        self.check_repetitions()
        self.check_nothing_is_lost()

    def check_history(self) -> None:
        for violation in check_history(self._events):
            raise Broken(str(violation))

    def check_nothing_is_lost(self) -> None:
        handled = {id for id, _ in self.done}
        acked = {event.message_id for event in self._events if event.kind == "acked"}
        for id in self._put:
            if id not in handled:
                raise Broken(f"message {id} was never handled")
            if id not in acked:
                raise Broken(f"message {id} was handled and not acknowledged")

    def check_ends_of_leases(self, killed: Collection[str]) -> None:
        """Who lives keeps its leases."""
        for event in self._events:
            if event.kind == "lease_expired" and event.worker not in killed:
                raise Broken(f"message {event.message_id}: {event.worker} lost a lease and lived")

    def check_repetitions(self) -> None:
        """A message is handled again only after its lease has ended."""
        closed = {
            (event.message_id, event.attempt): event.kind
            for event in self._events
            if event.kind in CLOSES
        }
        for (id, attempt), times in self.done.items():
            if times > 1:
                raise Broken(f"message {id}: attempt {attempt} was handled {times} times")
            end = closed.get((id, attempt))
            if end not in ("acked", "lease_expired"):
                raise Broken(f"message {id}: attempt {attempt} was handled and ended as {end}")

    def check_charges(self) -> None:
        """Only what a runner had taken is charged with a crash, once for each time."""
        begun: Counter[str] = Counter()
        for entry in self._diary:
            if entry.what == "begun":
                begun[entry.id] += 1
            elif entry.crashes >= begun[entry.id]:
                raise Broken(
                    f"message {entry.id} was charged {entry.crashes} times,"
                    f" begun {begun[entry.id] - 1} times before"
                )


def max_charges(diary: Sequence[Entry]) -> Counter[str]:
    """How often each message was charged with a crash, as far as its deliveries tell."""
    charged: Counter[str] = Counter()
    for entry in diary:
        charged[entry.id] = max(charged[entry.id], entry.crashes)
    return +charged
