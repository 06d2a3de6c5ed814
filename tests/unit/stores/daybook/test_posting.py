"""The file is the same as if every call that was noted had been a transaction."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import StoreCorrupt
from localqueue.message import Receipt
from localqueue.outcome import Ack
from localqueue.stores.protocol import LeaseRequest, Put, Settle, StoredMessage
from localqueue.stores.sqlite.daybook.entries import Acks, Entry, Leases, Puts
from localqueue.stores.sqlite.daybook.posting import _Net
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs.fold import EVERY
from localqueue.stores.sqlite.view import Transaction
from tests.unit.stores.daybook.phrases import (
    NOW,
    ack,
    bodies,
    lease,
    open_store,
    put,
    query,
    waiting,
)
from tests.unit.stores.engine.phrases import runner_of
from tests.unit.stores.phrases import count_noted, note_at_once, note_nothing

QUEUES = ("jobs", "urgent")


class Script:
    """The same random calls each time, nearly all of them plain; ``said`` is what was answered."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = SQLiteQueueStore(path, durability="relaxed")
        self.now = NOW
        self.said: list[Any] = []
        self.leased: dict[str, list[StoredMessage]] = {queue: [] for queue in QUEUES}
        self.store.configure("urgent", {"ordering": "priority"}, now=NOW)
        self.store.configure("jobs", {"crash_limit": 2}, now=NOW)

    def run(self, steps: int) -> None:
        ways = [self.put, self.lease, self.ack, self.ack_and_lease]
        for _ in range(steps):
            self.now += self.random.choice([0.0, 0.0, 0.001, 0.2])
            queue = self.random.choice(QUEUES)
            if self.random.random() < 0.04:
                self.something_else(queue)
            else:
                self.random.choice(ways)(queue)
        self.store.close()

    def put(self, queue: str) -> None:
        n = self.random.choice([1, 1, 1, 2, 12])
        puts = [Put(queue, b"%d" % self.random.randrange(1000)) for _ in range(n)]
        answers = self.store.enqueue_many(puts, now=self.now)
        self.said += [answer._replace(message=self.seen(answer.message)) for answer in answers]

    def request(self, queue: str) -> LeaseRequest:
        return LeaseRequest(
            (queue,),
            self.random.choice([1, 1, 1, 2, 10]),
            timeout=self.random.choice([300.0, 600.0]),
            worker=self.random.choice([None, "w", "ü"]),
            liveness=self.random.choice([None, "pid"]),
            prefetched=self.random.choice([False, True]),
            remove=self.random.random() < 0.1,
        )

    def lease(self, queue: str) -> None:
        self.take(self.request(queue), None)

    def take(self, request: LeaseRequest, leased: Sequence[StoredMessage] | None) -> None:
        if leased is None:
            leased = self.store.lease(request, now=self.now)
        self.said.append([self.seen(message) for message in leased])
        if not request.remove:
            self.leased[request.queues[0]] += leased

    def seen(self, message: StoredMessage) -> StoredMessage:
        """Ids begin with bits of their file."""
        return message._replace(id=message.id[16:])

    def some(self, queue: str) -> list[Receipt]:
        held = self.leased[queue]
        if self.random.random() < 0.3:
            self.random.shuffle(held)
        n = self.random.choice([1, 1, 2, 10])
        some, self.leased[queue] = held[:n], held[n:]
        return [Receipt(message.queue, message.id, message.token) for message in some]

    def ack(self, queue: str) -> None:
        self.said.append(self.store.ack_many(self.some(queue), now=self.now))

    def ack_and_lease(self, queue: str) -> None:
        settles = [Settle(receipt, Ack()) for receipt in self.some(queue)]
        request = self.request(queue)
        answers, leased = self.store.settle_and_lease(settles, request, now=self.now)
        self.said.append(answers)
        self.take(request, leased)

    def something_else(self, queue: str) -> None:
        match self.random.randrange(4):
            case 0:
                options: dict[str, Any] = (
                    {"priority": 3} if queue == "urgent" else {"headers": b"{}"}
                )
                self.store.enqueue_many([Put(queue, b"0", **options)], now=self.now)
            case 1:
                self.said.append(self.store.release_many(self.some(queue), now=self.now))
            case 2:
                self.said.append(self.store.stats(queue, now=self.now).as_dict())
            case 3:
                self.said.append(self.store.dead_letter_many(self.some(queue), now=self.now))


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that could differ; not how far the book was posted, and not whose file it is."""
    with closing(sqlite3.connect(path)) as db:
        # A note is read of a lease only; what else stands there is nothing but room for one.
        db.execute("UPDATE message SET note = NULL WHERE state != 3")
        db.execute("DELETE FROM mark WHERE name = 'daybook'")
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        return {
            name: db.execute(f"SELECT * FROM {name}").fetchall()
            for name in names
            if name != "identity"
        }


def compare(tmp_path: Path, patch: pytest.MonkeyPatch, seed: int) -> list[Entry]:
    """Run it with and without a book; what was noted."""
    note_nothing(patch)
    plain = Script(tmp_path / "plain.sqlite3", seed)
    plain.run(200)
    note_at_once(patch)
    noted = count_noted(patch)
    with_book = Script(tmp_path / "noted.sqlite3", seed)
    with_book.run(200)

    assert with_book.said == plain.said
    expected = contents(plain.store.path)
    assert 100 < len(expected["event"]) < EVERY, "a fold is an event of its own"
    assert contents(with_book.store.path) == expected
    return noted


@pytest.mark.parametrize("seed", range(12))
def test_all_tables_are_the_same_with_and_without_a_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    noted = compare(tmp_path, monkeypatch, seed)

    kinds = [type(entry) for entry in noted]
    assert min(kinds.count(kind) for kind in (Puts, Leases, Acks)) > 15


def test_a_book_that_comes_to_something_else_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post_lease = _Net._lease

    def of_nobody(net: _Net, entry: Leases) -> None:
        post_lease(net, entry._replace(worker=None))

    monkeypatch.setattr(_Net, "_lease", of_nobody)

    with pytest.raises(AssertionError):
        compare(tmp_path, monkeypatch, 0)


@pytest.mark.usefixtures("noting")
@pytest.mark.parametrize("n", [1, 20])
def test_messages_that_came_and_went_leave_their_events_and_no_row(tmp_path: Path, n: int) -> None:
    path = tmp_path / "queue.sqlite3"
    with open_store(path) as store:
        put(store, *[b"1"] * n)
        assert ack(store, lease(store, n)) == [True] * n
        assert query(path, "SELECT count(*) FROM event WHERE message IS NOT NULL") == [(0,)]

        assert waiting(store) == []

        kinds = [event.kind for event in store.journal() if event.message_id is not None]
        assert kinds == ["enqueued"] * n + ["leased"] * n + ["acked"] * n
        assert query(path, "SELECT count(*) FROM message") == [(0,)]
        assert store.check().ok


@pytest.mark.usefixtures("noting")
def test_each_generation_goes_on_where_the_one_before_it_ended(tmp_path: Path) -> None:
    with open_store(tmp_path / "queue.sqlite3") as store:
        put(store, b"1", b"2", b"3")
        assert waiting(store) == [b"1", b"2", b"3"]
        [first] = lease(store)
        assert waiting(store) == [b"2", b"3"]
        put(store, b"4")
        second, third = lease(store, 2)
        assert waiting(store) == [b"4"]

        assert ack(store, [first]) == [True]
        assert ack(store, [third, second]) == [True, True]

        assert bodies(lease(store, 9)) == [b"4"]
        assert store.stats("jobs", now=NOW).inflight == 1
        assert store.check().ok


def trip(tx: Transaction) -> None:
    raise TypeError("a row that nobody expects")


@pytest.mark.parametrize(("damaged", "error"), [(False, TypeError), (True, StoreCorrupt)])
def test_who_trips_over_what_it_reads_hears_of_damage_also_where_something_is_noted(
    tmp_path: Path, noting: None, damaged: bool, error: type[Exception]
) -> None:
    path = tmp_path / "queue.sqlite3"
    open_store(path).close()
    if damaged:
        [(root,)] = query(path, "SELECT rootpage FROM sqlite_master WHERE name = 'record'")
        with path.open("r+b") as file:
            file.seek((root - 1) * 4096)
            file.write(b"\xff" * 4096)

    with SQLiteQueueStore(path, durability="relaxed") as store:
        put(store, b"1")
        put(store, b"2")
        with pytest.raises(error):
            runner_of(store).write(trip, NOW)
        assert waiting(store) == [b"1", b"2"]
