"""Counts without counting: the running counts against a recount of the rows by SQL."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import DuplicateConflict
from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put, QueueIsFull, StoredMessage
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs.fold import EVERY

NOW = 1_700_000_000.0
BEFORE_ALL = 0.0
"""At this time nothing is due and nothing has expired: every message is where its row says."""
QUEUES = ("plain", "keyed", "brief")
STATES = ("ready", "delayed", "held", "inflight", "dead")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteQueueStore]:
    store = SQLiteQueueStore(path, durability="relaxed")
    yield store
    store.close()


def query(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement, values).fetchall()


def recount(path: Path, queue: str) -> dict[str, int]:
    """How many rows each state has."""
    rows = query(
        path,
        "SELECT state, count(*) FROM message JOIN queue ON queue.id = message.queue"
        " WHERE queue.name = ? GROUP BY state",
        queue,
    )
    return dict.fromkeys(STATES, 0) | {STATES[state]: n for state, n in rows}


def counted(store: SQLiteQueueStore, queue: str) -> dict[str, int]:
    """What the store says without looking at the rows."""
    stats = store.stats(queue, now=BEFORE_ALL)
    assert stats.total == stats.ready + stats.delayed + stats.inflight + stats.dead
    assert store.qsize(queue, now=BEFORE_ALL) == stats.ready
    assert store.waiting(queue, now=BEFORE_ALL) == stats.ready + stats.delayed
    return {
        "ready": stats.ready,
        "delayed": stats.delayed - stats.held,
        "held": stats.held,
        "inflight": stats.inflight,
        "dead": stats.dead,
    }


def check_counts(path: Path, *stores: SQLiteQueueStore) -> None:
    for queue in QUEUES:
        # First: who reads has the daybook posted, and the rows are complete then.
        said = [counted(store, queue) for store in stores]
        assert said == [recount(path, queue)] * len(stores)


def events_of(path: Path, queue: str) -> int:
    [(n,)] = query(
        path,
        "SELECT count(*) FROM event JOIN queue ON queue.id = event.queue WHERE queue.name = ?",
        queue,
    )
    return int(n)


def body(value: int = 0) -> bytes:
    return str(value).encode()


def happen(store: SQLiteQueueStore, queue: str, events: int, now: float = NOW) -> None:
    """Let at least so many events happen to a queue: put, leased and acknowledged in batches."""
    for _ in range(0, events, 900):
        store.enqueue_many([Put(queue, body())] * 300, now=now)
        leased = store.lease(LeaseRequest((queue,), 300), now=now)
        assert all(store.ack_many([receipt(message) for message in leased], now=now))


def receipt(message: StoredMessage) -> Receipt:
    return Receipt(message.queue, message.id, message.token)


class Traffic:
    """Random operations on a few queues, through one store after the other, from a seed."""

    def __init__(self, seed: int, stores: list[SQLiteQueueStore]) -> None:
        self.random = random.Random(seed)
        self.stores = stores
        self.now = NOW
        self.leased: list[StoredMessage] = []
        self.leases: Counter[tuple[str, str]] = Counter()
        stores[0].configure("keyed", {"ordering": "per-key"}, now=NOW)
        stores[0].configure("brief", {"ttl": 40.0, "on_expiry": "dead-letter"}, now=NOW)

    def step(self) -> None:
        self.now += self.random.random() * 5
        kinds = (
            [self.put] * 6 + [self.lease] * 5 + [self.settle] * 5 + [self.look_after_the_dead] * 2
        )
        self.random.choice([*kinds, self.refused, self.cancel, self.purge])()

    @property
    def store(self) -> SQLiteQueueStore:
        return self.random.choice(self.stores)

    def put(self) -> None:
        queue = self.random.choice(QUEUES)
        options: dict[str, Any] = {}
        if self.random.random() < 0.3:
            options["delay"] = self.random.choice([1.0, 30.0, 1000.0])
        puts = []
        for number in range(self.random.randrange(1, 30)):
            key = f"k{number % 4}" if queue == "keyed" else None
            puts.append(Put(queue, body(number), ordering_key=key, **options))
        self.store.enqueue_many(puts, now=self.now)

    def refused(self) -> None:
        """A batch that is undone after part of it was written."""
        puts = [Put("plain", body(n), dedupe_key="k", fingerprint=n) for n in range(3)]
        puts = [put._replace(conflict_is_error=True) for put in puts]
        with pytest.raises(DuplicateConflict):
            self.store.enqueue_many([Put("plain", body()), *puts], now=self.now)

    def lease(self) -> None:
        worker = self.random.choice([None, "w1", "w2"])
        queues = tuple(self.random.sample(QUEUES, 2))
        request = LeaseRequest(
            queues,
            self.random.randrange(1, 40),
            timeout=self.random.choice([5.0, 60.0]),
            worker=worker,
            liveness=self.random.choice([None, "pid-1"]),
            remove=self.random.random() < 0.1,
        )
        leased = self.store.lease(request, now=self.now)
        self.leases.update((message.queue, worker) for message in leased if worker is not None)
        if not request.remove:
            self.leased += leased

    def settle(self) -> None:
        self.random.shuffle(self.leased)
        some = [receipt(self.leased.pop()) for _ in range(min(len(self.leased), 20))]
        how = self.random.randrange(4)
        if how < 2:
            self.store.ack_many(some, now=self.now)
        elif how == 2:
            delay = self.random.choice([0.0, 20.0])
            self.store.release_many(some, delay=delay, error={"type": "E"}, now=self.now)
        else:
            self.store.dead_letter_many(some, error={"type": "E"}, now=self.now)

    def look_after_the_dead(self) -> None:
        queue = self.random.choice(QUEUES)
        if self.random.random() < 0.5:
            dead = [message.id for message in self.store.dead_letters(queue, limit=10)]
            self.store.requeue_dead_many(queue, dead, now=self.now)
        else:
            self.store.prune_dead_letters(queue, older_than=30.0, now=self.now)

    def cancel(self) -> None:
        queue = self.random.choice(QUEUES)
        for message in self.store.peek(queue, 3, now=self.now):
            self.store.cancel(queue, message.id, now=self.now)

    def purge(self) -> None:
        if self.random.random() < 0.3:
            queue = self.random.choice(QUEUES)
            self.store.purge(queue, now=self.now)
            for owner, worker in list(self.leases):
                if owner == queue:
                    del self.leases[owner, worker]


@pytest.mark.parametrize("seed", range(4))
def test_running_counts_equal_a_recount_after_anything(
    path: Path, store: SQLiteQueueStore, seed: int
) -> None:
    other = SQLiteQueueStore(path, durability="relaxed")
    traffic = Traffic(seed, [store, other])

    for _ in range(30):
        for _ in range(15):
            traffic.step()
        check_counts(path, store, other)

    fresh = SQLiteQueueStore(path)
    check_counts(path, fresh)
    for one in (store, other, fresh):
        for queue in QUEUES:
            expected = {
                worker: n for (owner, worker), n in traffic.leases.items() if owner == queue
            }
            assert one.stats(queue, now=BEFORE_ALL).leases_by_worker_id == expected
    [(folded,)] = query(path, "SELECT seq FROM mark WHERE name = 'fold'")
    assert folded > EVERY, "the journal was folded on the way"
    for one in (other, fresh):
        one.close()


def test_a_recount_notices_a_message_that_came_or_went_uncounted(
    path: Path, store: SQLiteQueueStore
) -> None:
    store.enqueue_many([Put("plain", body())] * 3, now=NOW)
    check_counts(path, store)

    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM message WHERE id = (SELECT min(id) FROM message)")

    with pytest.raises(AssertionError):
        check_counts(path, store)


# --- two stores on one file ---------------------------------------------------------------------
def test_two_stores_see_each_others_counts_at_once(path: Path, store: SQLiteQueueStore) -> None:
    other = SQLiteQueueStore(path, durability="relaxed")

    for number in range(1, 20):
        store.enqueue_many([Put("plain", body())], now=NOW)
        assert other.qsize("plain", now=NOW) == number
    other.lease(LeaseRequest(("plain",), 5, worker="w1"), now=NOW)

    assert store.stats("plain", now=NOW).inflight == 5
    assert store.stats("plain", now=NOW).leases_by_worker_id == {"w1": 5}
    other.close()


def test_two_stores_never_exceed_the_bound_together(path: Path, store: SQLiteQueueStore) -> None:
    other = SQLiteQueueStore(path, durability="relaxed")
    store.configure("plain", {"maxsize": 7}, now=NOW)

    refused = 0
    for number in range(20):
        try:
            (store, other)[number % 2].enqueue_many([Put("plain", body(number))], now=NOW)
        except QueueIsFull:
            refused += 1

    assert refused == 13
    assert counted(store, "plain")["ready"] == recount(path, "plain")["ready"] == 7
    other.close()


def test_a_store_that_slept_over_folds_and_trims_counts_right_again(
    path: Path, store: SQLiteQueueStore
) -> None:
    sleeper = SQLiteQueueStore(path, durability="relaxed")
    store.configure("plain", {"journal": False}, now=NOW)
    store.enqueue_many([Put("plain", body())] * 10, now=NOW)
    assert sleeper.qsize("plain", now=NOW) == 10

    happen(store, "plain", 3 * EVERY)
    store.lease(LeaseRequest(("plain",), 4, worker="w1"), now=NOW)

    check_counts(path, sleeper)
    assert sleeper.stats("plain", now=NOW).leases_by_worker_id == {"w1": 4}
    sleeper.close()


def test_a_purge_is_seen_by_another_store_also_of_its_workers(
    path: Path, store: SQLiteQueueStore
) -> None:
    other = SQLiteQueueStore(path, durability="relaxed")
    store.enqueue_many([Put("plain", body())] * 3, now=NOW)
    other.lease(LeaseRequest(("plain",), 1, worker="w1"), now=NOW)
    assert other.stats("plain", now=NOW).total == 3

    assert store.purge("plain", now=NOW) == 3

    assert other.stats("plain", now=NOW).as_dict() == other.stats("unused", now=NOW).as_dict()
    other.close()


def test_a_refused_batch_leaves_the_counts_as_they_were(
    path: Path, store: SQLiteQueueStore
) -> None:
    store.enqueue_many([Put("plain", body(), dedupe_key="k", fingerprint=1)], now=NOW)
    conflict = Put("plain", body(), dedupe_key="k", fingerprint=2, conflict_is_error=True)

    with pytest.raises(DuplicateConflict):
        store.enqueue_many([*[Put("plain", body())] * 5, conflict], now=NOW)

    assert store.qsize("plain", now=NOW) == 1
    check_counts(path, store)


# --- folding and trimming -----------------------------------------------------------------------
def test_what_is_counted_is_read_from_the_tail_only(path: Path, store: SQLiteQueueStore) -> None:
    happen(store, "plain", 2 * EVERY)
    store.enqueue_many([Put("plain", body())] * 3, now=NOW)
    check_counts(path, store)

    [(newest,)] = query(path, "SELECT max(seq) FROM event")
    [(folded,)] = query(path, "SELECT seq FROM mark WHERE name = 'fold'")

    assert 0 < newest - folded < 2 * EVERY
    check_counts(path, store)


def test_a_batch_larger_than_a_fold_is_counted_exactly(path: Path, store: SQLiteQueueStore) -> None:
    store.enqueue_many([Put("plain", body())] * (2 * EVERY + 1), now=NOW)
    leased = store.lease(LeaseRequest(("plain",), 3000), now=NOW)
    store.ack_many([receipt(message) for message in leased[:2500]], now=NOW)

    assert counted(store, "plain")["ready"] == 2 * EVERY + 1 - 3000
    check_counts(path, store)


def test_a_journal_keeps_no_more_rows_than_it_should(path: Path, store: SQLiteQueueStore) -> None:
    store.configure("plain", {"journal_max_rows": 500}, now=NOW)

    happen(store, "plain", 6 * EVERY)

    assert 500 <= events_of(path, "plain") <= 500 + 2 * EVERY
    check_counts(path, store)


def test_a_journal_keeps_nothing_older_than_it_should(path: Path, store: SQLiteQueueStore) -> None:
    store.configure("plain", {"journal_max_age": 60.0}, now=NOW)
    happen(store, "plain", EVERY)

    happen(store, "plain", 3 * EVERY, now=NOW + 61)

    [(old,)] = query(path, "SELECT count(*) FROM event WHERE at <= ?", NOW)
    assert old == 0
    check_counts(path, store)


def test_a_journal_that_is_off_keeps_only_what_is_not_counted_yet(
    path: Path, store: SQLiteQueueStore
) -> None:
    store.configure("plain", {"journal": False}, now=NOW)

    happen(store, "plain", 6 * EVERY)

    assert events_of(path, "plain") <= 2 * EVERY
    check_counts(path, store)


def test_numbers_never_start_again_however_much_is_trimmed(
    path: Path, store: SQLiteQueueStore
) -> None:
    store.configure("plain", {"journal": False}, now=NOW)
    happen(store, "plain", 3 * EVERY)
    [before] = store.enqueue_many([Put("plain", body())], now=NOW)
    [leased] = store.lease(LeaseRequest(("plain",)), now=NOW)
    store.ack_many([receipt(leased)], now=NOW)
    store.purge("plain", now=NOW)
    store.close()

    again = SQLiteQueueStore(path)
    [after] = again.enqueue_many([Put("plain", body())], now=NOW)
    [newer] = again.lease(LeaseRequest(("plain",)), now=NOW)
    again.close()

    assert after.message.id > before.message.id
    assert newer.token > leased.token


@pytest.mark.parametrize("settings", [{"journal": False}, {"journal_max_rows": 10}])
def test_a_reader_keeps_events_for_itself_as_long_as_its_own_limit(
    path: Path, store: SQLiteQueueStore, settings: dict[str, Any]
) -> None:
    store.configure("plain", settings, now=NOW)
    reader = store.register_reader("billing", max_age=3600.0, now=NOW)

    happen(store, "plain", 2 * EVERY, now=NOW + 1)

    page = store.journal(["plain"], after=reader.position, limit=10_000)
    kinds = Counter(event.kind for event in page)
    assert kinds["enqueued"] == kinds["leased"] == kinds["acked"] == 5 * 300

    happen(store, "plain", 4 * EVERY, now=NOW + 3700)
    [(old,)] = query(path, "SELECT count(*) FROM event WHERE at = ?", NOW + 1)
    assert old == 0, "over its limit"
    check_counts(path, store)


@pytest.mark.parametrize("end", ["commit", "drop"])
def test_what_a_reader_has_or_wants_no_more_is_let_go(
    path: Path, store: SQLiteQueueStore, end: str
) -> None:
    store.configure("plain", {"journal": False}, now=NOW)
    store.register_reader("billing", now=NOW)
    happen(store, "plain", 2 * EVERY)
    [(newest,)] = query(path, "SELECT max(seq) FROM event")

    if end == "commit":
        store.commit_reader("billing", store.journal_end(), now=NOW)
    else:
        assert store.drop_reader("billing")
    happen(store, "plain", 4 * EVERY)

    assert newest > 2 * EVERY
    assert query(path, "SELECT count(*) FROM event WHERE seq <= ?", newest) == [(0,)]
    check_counts(path, store)


def test_one_queues_trimming_leaves_the_others_journal(path: Path, store: SQLiteQueueStore) -> None:
    store.enqueue_many([Put("keyed", body())], now=NOW)
    store.configure("plain", {"journal": False}, now=NOW)
    before = events_of(path, "keyed")

    happen(store, "plain", 4 * EVERY)

    assert events_of(path, "keyed") >= before
    assert [event.kind for event in store.journal(["keyed"])][:2] == ["configured", "enqueued"]
