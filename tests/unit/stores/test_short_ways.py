"""Plain messages are leased and settled in a few statements: the same happens as one by one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localqueue.codec import JSON_CODEC
from localqueue.message import Receipt
from localqueue.outcome import Ack, Crashed, DeadLetter, Release, Settlement
from localqueue.stores.leased import LeasedTogether
from localqueue.stores.present import present, present_leased
from localqueue.stores.protocol import LeaseRequest, Put, Settle, Settled, StoredMessage
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs import enqueue, lease, publish, settle
from tests.unit.stores.phrases import note_nothing

NOW = 1_700_000_000.0
SETTINGS: dict[str, dict[str, Any]] = {
    "jobs": {},
    "urgent": {"ordering": "priority"},
    "keys": {"ordering": "per-key"},
    "small": {"maxsize": 1000},
}
TABLES = ("message", "event", "attempt", "dedupe", "counter", "worker", "kept", "mark", "span")


def body(value: object) -> bytes:
    return JSON_CODEC.encode(value)


def receipt(message: StoredMessage) -> Receipt:
    return Receipt(message.queue, message.id, message.token)


def without_short_ways(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish, "asks_for_nothing", lambda *_: False)
    patch.setattr(publish, "is_plain", lambda *_: False)
    patch.setattr(publish, "are_alike", lambda *_: False)
    patch.setattr(enqueue, "is_plain", lambda *_: False)
    patch.setattr(lease, "lease_one", lambda *_: None)
    patch.setattr(lease, "lease_plain", lambda *_: None)
    patch.setattr(settle, "ack_plain", lambda tx, receipts: not receipts)
    patch.setattr(settle, "is_mere_ack", lambda item: False)


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that could differ, with times and numbers; ids of the file do not matter."""
    with closing(sqlite3.connect(path)) as db:
        # A note is read of a lease only; what else stands there is nothing but room for one.
        db.execute("UPDATE message SET note = NULL WHERE state != 3")
        return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}


class Script:
    """The same random calls each time; ``said`` is what they were answered."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = SQLiteQueueStore(path, durability="relaxed")
        self.now = NOW
        self.said: list[Any] = []
        self.leased: list[StoredMessage] = []
        self.together = 0
        for queue, changes in SETTINGS.items():
            self.store.configure(queue, changes, now=NOW)

    def run(self, steps: int) -> None:
        ways = [self.put] * 3 + [self.lease] * 3 + [self.ack] * 3 + [self.fused] * 2 + [self.extend]
        for _ in range(steps):
            self.now += self.random.choice([0.0, 0.001, 1.0, 20.0])
            self.random.choice(ways)()
        self.store.close()

    def put(self) -> None:
        queue = self.random.choice([*SETTINGS, "jobs", "jobs"])
        options: dict[str, Any] = {}
        match self.random.randrange(8):
            case 0:
                options["delay"] = 2.0
            case 1:
                options["headers"] = b'{"a":"b"}'
            case 2:
                options["ttl"] = 30.0
            case 3:
                options["dedupe_key"] = f"d{self.random.randrange(5)}"
            case 4 if queue == "keys":
                options["ordering_key"] = f"k{self.random.randrange(3)}"
            case 5 if queue == "urgent":
                options["priority"] = self.random.randrange(1, 4)
            case 6:
                options["codec"] = "bytes"
        puts = [Put(queue, body(n), **options) for n in range(self.random.randrange(1, 12))]
        self.store.enqueue_many(puts, now=self.now)

    def request(self) -> LeaseRequest:
        return LeaseRequest(
            tuple(self.random.sample(list(SETTINGS), self.random.randrange(1, 3))),
            self.random.choice([0, 1, 1, 3, 20]),
            timeout=self.random.choice([10.0, 60.0]),
            worker=self.random.choice([None, "w"]),
            liveness=self.random.choice([None, "pid"]),
            codecs=self.random.choice([None, ("json",), ("json", "bytes")]),
            prefetched=self.random.choice([False, True]),
            remove=self.random.random() < 0.2,
        )

    def lease(self) -> None:
        self.take(self.store.lease(self.request(), now=self.now))

    def take(self, leased: Sequence[StoredMessage]) -> None:
        self.together += type(leased) is LeasedTogether
        self.said.append([self.seen(message) for message in leased])
        self.leased += leased

    def seen(self, message: StoredMessage) -> StoredMessage:
        return message._replace(id=message.id[16:])

    def some(self) -> list[StoredMessage]:
        """Leases in the order they were taken, or in any; some of them over or used already."""
        if self.random.random() < 0.3:
            self.random.shuffle(self.leased)
        n = self.random.choice([1, 1, 2, 5, 20])
        some, rest = self.leased[:n], self.leased[n:]
        self.leased = rest + self.random.sample(some, min(len(some), self.random.choice([0, 0, 1])))
        return some

    def ack(self) -> None:
        receipts = [receipt(message) for message in self.some()]
        if receipts and self.random.random() < 0.2:
            receipts.append(receipts[0])
        if receipts and self.random.random() < 0.1:
            receipts[-1] = receipts[-1]._replace(token=self.random.choice([None, 0, 7]))
        self.said.append(self.store.ack_many(receipts, now=self.now))

    def fused(self) -> None:
        settlements: list[Settlement] = [Ack()] * 4
        settlements += [Release(0.0, {"type": "E"}), DeadLetter(None), Crashed(None)]
        settles = [
            Settle(
                receipt(message),
                self.random.choice(settlements),
                puts=(Put("jobs", body("next")),) if self.random.random() < 0.1 else (),
            )
            for message in self.some()
        ]
        answers, leased = self.store.settle_and_lease(settles, self.request(), now=self.now)
        self.said.append(answers)
        self.take(leased)

    def extend(self) -> None:
        receipts = [receipt(message) for message in self.leased[:3]]
        self.said.append(self.store.extend(receipts, timeout=60.0, note="half", now=self.now))


@pytest.mark.parametrize("seed", range(6))
def test_the_file_is_the_same_as_if_every_message_were_looked_at_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    note_nothing(monkeypatch)
    short, long = (Script(tmp_path / name, seed) for name in ("short.sqlite3", "long.sqlite3"))

    short.run(400)
    with monkeypatch.context() as patch:
        without_short_ways(patch)
        long.run(400)

    assert short.said == long.said
    assert contents(short.store.path) == contents(long.store.path)
    assert short.together > 5, "the short way was taken"
    assert long.together == 0


def test_a_short_way_that_does_something_else_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = SQL.add_ack_events_of_run
    monkeypatch.setattr(SQL, "add_ack_events_of_run", statement.replace("m.attempts", "9"))

    with pytest.raises(AssertionError):
        test_the_file_is_the_same_as_if_every_message_were_looked_at_by_itself(
            tmp_path, monkeypatch, 0
        )


# --- what is answered ---------------------------------------------------------------------------
@pytest.fixture
def store(tmp_path: Path) -> SQLiteQueueStore:
    return SQLiteQueueStore(tmp_path / "queue.sqlite3", durability="relaxed")


def leased_together(store: SQLiteQueueStore, n: int, **options: Any) -> LeasedTogether:
    leased = store.lease(LeaseRequest(("jobs",), n, **options), now=NOW + 1)
    assert type(leased) is LeasedTogether
    return leased


def test_messages_leased_together_are_a_sequence_of_stored_messages(
    store: SQLiteQueueStore,
) -> None:
    store.enqueue_many([Put("jobs", body(n)) for n in range(3)], now=NOW)

    leased = leased_together(store, 5, worker="w")

    assert len(leased) == 3
    assert [message.body for message in leased] == [b"0", b"1", b"2"]
    assert leased[-1] == leased[2] == list(leased)[2]
    assert leased[1:] == [leased[1], leased[2]]
    assert leased[0].history == [{"type": "leased", "at": NOW + 1, "attempt": 1, "leased_by": "w"}]
    with pytest.raises(IndexError):
        leased[3]


def test_prefetched_messages_are_leased_and_settled_in_the_short_way_too(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue_many([Put("jobs", body(n)) for n in range(6)], now=NOW)
    first = leased_together(store, 3, liveness="pid", prefetched=True)
    monkeypatch.setattr(settle, "remove", None)
    request = LeaseRequest(("jobs",), 3, liveness="pid", prefetched=True)

    settled, leased = store.settle_and_lease(
        [Settle(receipt(message), Ack()) for message in first], request, now=NOW
    )

    assert settled == [Settled.DONE] * 3
    assert type(leased) is LeasedTogether
    assert [message.body for message in leased] == [b"3", b"4", b"5"]


@pytest.mark.parametrize("drift", [0.0, 3600.0])
def test_messages_leased_together_are_presented_as_each_by_itself(
    store: SQLiteQueueStore, drift: float
) -> None:
    puts = [Put("jobs", body({"n": n}), delay=0.5 * (n % 2)) for n in range(4)]
    store.enqueue_many(puts, now=NOW)
    leased = leased_together(store, 4, worker="w")

    messages, damaged = present_leased(leased, JSON_CODEC, drift)

    assert messages == [present(message, JSON_CODEC, drift) for message in leased]
    assert damaged == []
    assert messages[0].headers is not messages[1].headers
    assert messages[0].attempt_history[0] is not messages[1].attempt_history[0]


def test_one_that_cannot_be_decoded_is_left_out_and_named(store: SQLiteQueueStore) -> None:
    store.enqueue_many([Put("jobs", text) for text in (b"1", b"{", b"3")], now=NOW)
    leased = leased_together(store, 3)

    messages, damaged = present_leased(leased, JSON_CODEC, 0.0)

    assert [message.value for message in messages] == [1, 3]
    assert [held for held, _ in damaged] == [receipt(leased[1])]


# --- receipts -----------------------------------------------------------------------------------
def test_a_run_with_one_stale_receipt_leaves_that_message_alone(store: SQLiteQueueStore) -> None:
    store.enqueue_many([Put("jobs", body(n)) for n in range(5)], now=NOW)
    leased = store.lease(LeaseRequest(("jobs",), 5), now=NOW)
    store.release_many([receipt(leased[2])], now=NOW)
    before = store.journal_end()

    answers = store.ack_many([receipt(message) for message in leased], now=NOW)

    assert answers == [True, True, False, True, True]
    acked = store.journal(["jobs"], after=before)
    assert [event.message_id for event in acked] == [leased[n].id for n in (0, 1, 3, 4)]
    assert [message.body for message in store.peek("jobs", 9, now=NOW)] == [b"2"]


def test_receipts_of_a_run_in_another_order_are_journalled_in_that_order(
    store: SQLiteQueueStore,
) -> None:
    store.enqueue_many([Put("jobs", body(n)) for n in range(4)], now=NOW)
    leased = list(store.lease(LeaseRequest(("jobs",), 4), now=NOW))[::-1]
    before = store.journal_end()

    assert store.ack_many([receipt(message) for message in leased], now=NOW) == [True] * 4

    acked = [event.message_id for event in store.journal(["jobs"], after=before)]
    assert acked == [message.id for message in leased]


def test_neighbours_with_swapped_receipts_are_not_acknowledged(store: SQLiteQueueStore) -> None:
    """The numbers are all there, each with the message beside its own."""
    store.enqueue_many([Put("jobs", body(n)) for n in range(4)], now=NOW)
    one, two, three, four = store.lease(LeaseRequest(("jobs",), 4), now=NOW)
    swapped = [one, two._replace(id=three.id), three._replace(id=two.id), four]

    answers = store.ack_many([receipt(message) for message in swapped], now=NOW)

    assert answers == [True, False, False, True]


def test_a_receipt_with_a_number_that_never_was_changes_nothing(store: SQLiteQueueStore) -> None:
    store.enqueue_many([Put("jobs", body(1))], now=NOW)
    [message] = store.lease(LeaseRequest(("jobs",)), now=NOW)
    forged = [receipt(message)._replace(token=token) for token in (-1, 2**62, 2**63, 2**70)]
    beyond = [Receipt("jobs", f"{message.id[:16]}{2**63 - 1 + n:016x}", 5 + n) for n in range(2)]

    assert [store.ack_many([one], now=NOW) for one in forged] == [[False]] * 4
    assert store.ack_many(forged, now=NOW) == [False] * 4
    assert store.ack_many(beyond, now=NOW) == [False, False]
    assert store.ack_many([receipt(message)], now=NOW) == [True]


def test_messages_that_do_not_follow_each_other_are_leased_and_acknowledged_together(
    store: SQLiteQueueStore,
) -> None:
    for number in range(3):
        store.enqueue_many([Put("jobs", body(number))], now=NOW)
        store.enqueue_many([Put("elsewhere", b"0")], now=NOW)
    leased = leased_together(store, 3)

    assert store.ack_many([receipt(message) for message in leased], now=NOW) == [True] * 3
    assert [message.body for message in leased] == [b"0", b"1", b"2"]
    assert store.stats("jobs", now=NOW).total == 0


def test_acknowledgements_between_others_are_settled_in_the_order_given(
    store: SQLiteQueueStore,
) -> None:
    store.enqueue_many([Put("jobs", body(n)) for n in range(6)], now=NOW)
    leased = store.lease(LeaseRequest(("jobs",), 6), now=NOW)
    hows: list[Settlement] = [Ack(), Ack(), Release(5.0, None), Ack(), DeadLetter(None), Ack()]
    settles = [Settle(receipt(message), how) for message, how in zip(leased, hows, strict=True)]
    before = store.journal_end()

    answers, _ = store.settle_and_lease([*settles, settles[0]], None, now=NOW)

    assert answers == [Settled.DONE] * 6 + [Settled.STALE]
    told = [(event.kind, event.message_id) for event in store.journal(["jobs"], after=before)]
    kinds = ["acked", "acked", "released", "acked", "dead_lettered", "acked"]
    assert told == list(zip(kinds, [message.id for message in leased], strict=True))
