"""It is known where the events of a queue are: reading a quiet one passes nothing of a busy one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from localqueue.stores.protocol import JournalEvent, Put
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs import fold
from localqueue.stores.sqlite.verbs.fold import EVERY, MANY, WINDOW
from localqueue.stores.sqlite.verbs.journal import MOST_MERGED, journal
from localqueue.stores.sqlite.view import FileState, View

NOW = 1_700_000_000.0


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


def put(store: SQLiteQueueStore, queue: str, n: int = 1, now: float = NOW) -> None:
    for start in range(0, n, 5_000):
        store.enqueue_many([Put(queue, b"1")] * min(n - start, 5_000), now=now)


def spans(path: Path, queue: str) -> list[tuple[int, int]]:
    return query(
        path,
        "SELECT s.first, s.last FROM span AS s JOIN queue AS q ON q.id = s.queue"
        " WHERE q.name = ? ORDER BY s.last",
        queue,
    )


def steps(path: Path, queues: list[str], after: str | None = None, limit: int = 100) -> int:
    """How many instructions of SQLite's machine reading the journal takes."""
    taken = 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    with closing(sqlite3.connect(path)) as db:
        view = View(db, FileState(Identity(db.execute(SQL.identities).fetchall()), db.cursor()))
        db.set_progress_handler(step, 1)
        assert journal(view, queues, after, limit) != []
        db.set_progress_handler(None, 1)
    return taken


def marks(path: Path) -> dict[str, int]:
    return dict(query(path, "SELECT name, seq FROM mark"))


@contextmanager
def as_the_former_version() -> Iterator[None]:
    """Fold and trim like a process that opened the file before there were spans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "_list_spans", lambda *_: None)
        patch.setattr(SQL, "first_span", "SELECT 1 WHERE ? AND ? >= 0")
        patch.setattr(SQL, "forget_spans", "SELECT ? AND ?")
        yield


def among_all(store: SQLiteQueueStore, queues: list[str]) -> list[JournalEvent]:
    return [event for event in store.journal(limit=1_000_000) if event.queue in queues]


# --- reading --------------------------------------------------------------------------------------
@pytest.mark.parametrize("queues", [["quiet"], ["quiet", "other"]])
def test_a_quiet_queue_is_read_without_a_look_at_what_a_busy_one_wrote_before(
    path: Path, store: SQLiteQueueStore, queues: list[str]
) -> None:
    def taken(folds: int) -> int:
        for _ in range(folds):
            put(store, "busy", EVERY)
        return steps(path, queues)

    for queue in queues:
        put(store, queue, 3)
    put(store, "busy", EVERY)
    for queue in queues:
        put(store, queue, 3)

    few = taken(2)

    assert taken(10) == few
    assert steps(path, ["busy"], limit=EVERY) > EVERY, "the steps of passing rows are counted"


@pytest.mark.parametrize("place", ["at once", "between"])
def test_a_message_now_and_then_costs_the_same_however_much_is_written_between(
    tmp_path: Path, place: str
) -> None:
    def taken(between: int) -> int:
        path = tmp_path / f"{between}.sqlite3"
        with SQLiteQueueStore(path, durability="relaxed") as store:
            for _ in range(10):
                if place == "between":
                    put(store, "busy", between // 2)
                put(store, "quiet")
                put(store, "busy", between // 2 if place == "between" else between)
            told = among_all(store, ["quiet"])
            assert store.journal(["quiet"]) == told
            assert len(told) > 10
            return steps(path, ["quiet"], limit=len(told) - 1)

    assert taken(2 * EVERY) == taken(EVERY)


def test_reading_on_does_not_begin_anew(path: Path, store: SQLiteQueueStore) -> None:
    for _ in range(20):
        put(store, "quiet")
        put(store, "busy", EVERY)
    told = store.journal(["quiet"])

    early, late = (steps(path, ["quiet"], told[n].position, 5) for n in (3, 23))

    assert late == early


def test_many_queues_are_read_together_in_commit_order(store: SQLiteQueueStore) -> None:
    names = [f"q{number}" for number in range(MOST_MERGED + 1)]
    for _ in range(3):
        for name in names:
            put(store, name)
        put(store, "busy", EVERY)

    for queues in (names[:2], names[:-1], names, [*names, "busy"]):
        told = among_all(store, queues)
        assert store.journal(queues, limit=100_000) == told
        assert store.journal(queues, limit=100) == told[:100]


# --- where they are -------------------------------------------------------------------------------
def test_nothing_is_written_before_the_fold(path: Path, store: SQLiteQueueStore) -> None:
    put(store, "quiet")
    put(store, "busy", EVERY // 2)

    assert query(path, "SELECT count(*) FROM span") == [(0,)]
    assert len(store.journal(["quiet"])) == 2


def test_who_writes_alone_has_one_span_at_each_fold(path: Path, store: SQLiteQueueStore) -> None:
    for _ in range(3):
        put(store, "busy", EVERY)

    [one, two, three] = spans(path, "busy")

    assert one[0] == 1
    assert (two[0], three[0]) == (one[1] + 1, two[1] + 1)


@pytest.mark.parametrize("share", [1, 2, MANY - 5, MANY + 5, 300])
def test_every_event_is_in_one_span_whoever_writes(
    path: Path, store: SQLiteQueueStore, share: int
) -> None:
    for number in range(3):
        puts = [Put(f"q{n % share}", b"1") for n in range(EVERY + number)]
        store.enqueue_many(puts, now=NOW)

    assert store.check().problems == ()
    for queue in ("q0", f"q{share - 1}"):
        assert store.journal([queue], limit=100_000) == among_all(store, [queue])


# --- letting go of them ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings", [{"journal": False}, {"journal_max_rows": 500}, {"journal_max_age": 30.0}]
)
def test_the_spans_of_trimmed_events_go_with_them(
    path: Path, store: SQLiteQueueStore, settings: dict[str, Any]
) -> None:
    store.configure("busy", settings, now=NOW)
    put(store, "busy", EVERY)
    put(store, "quiet", 5, NOW + 20)

    for number in range(4):
        put(store, "busy", EVERY, NOW + 40 + number)
        put(store, "other", 100, NOW + 40 + number)

    [(first,)] = query(
        path,
        "SELECT min(e.seq) FROM event AS e JOIN queue AS q ON q.id = queue WHERE name = 'busy'",
    )
    assert first > EVERY
    assert all(last >= first for _, last in spans(path, "busy"))
    assert store.check().problems == ()
    for queue in ("busy", "quiet"):
        assert store.journal([queue], limit=100_000) == among_all(store, [queue]) != []


def test_a_journal_that_is_off_has_no_more_than_one_span(
    path: Path, store: SQLiteQueueStore
) -> None:
    store.configure("busy", {"journal": False}, now=NOW)

    for _ in range(4):
        put(store, "busy", EVERY)

    assert len(spans(path, "busy")) <= 1
    assert store.check().problems == ()


def test_the_trimmer_goes_to_a_queues_first_event_in_one_step(
    path: Path, store: SQLiteQueueStore
) -> None:
    put(store, "busy", 3 * WINDOW)
    store.configure("quiet", {"journal_max_age": 10.0}, now=NOW)
    put(store, "quiet", 5)
    put(store, "busy", EVERY)
    assert len(store.journal(["quiet"])) > 5

    put(store, "busy", EVERY, NOW + 20)

    assert [event for event in store.journal(["quiet"]) if event.at <= NOW] == []
    assert spans(path, "quiet") == []
    assert store.check().problems == ()


def test_a_purge_leaves_the_journal_as_it_was(path: Path, store: SQLiteQueueStore) -> None:
    put(store, "quiet", 3)
    put(store, "busy", 3)
    store.purge("quiet", now=NOW)
    put(store, "busy", EVERY)
    store.purge("busy", now=NOW)
    store.purge("busy", now=NOW)

    assert store.check().problems == ()
    for queue in ("busy", "quiet"):
        assert store.journal([queue], limit=100_000) == among_all(store, [queue])


# --- folds without spans --------------------------------------------------------------------------
@pytest.mark.parametrize("queues", [["quiet"], ["quiet", "busy"]])
def test_who_reads_a_queue_misses_nothing_of_what_the_former_version_folds(
    path: Path, store: SQLiteQueueStore, queues: list[str]
) -> None:
    put(store, "quiet", 3)
    put(store, "busy", EVERY)

    with as_the_former_version():
        for _ in range(3):
            put(store, "quiet", 3)
            put(store, "busy", EVERY)
        put(store, "quiet", 3)

    assert marks(path)["fold"] - marks(path)["span"] > 2 * EVERY
    assert store.check().problems == ()
    told = among_all(store, queues)
    assert store.journal(queues, limit=100_000) == told
    for n in range(0, len(told), 7):
        after = told[n].position
        assert store.journal(queues, after=after, limit=9) == told[n + 1 : n + 10]


def test_the_next_fold_lists_what_the_former_version_left_out(
    path: Path, store: SQLiteQueueStore
) -> None:
    put(store, "quiet", 3)
    put(store, "busy", EVERY)
    with as_the_former_version():
        for _ in range(3):
            put(store, "quiet", 3)
            put(store, "busy", EVERY)
    dear = steps(path, ["quiet"])

    put(store, "busy", EVERY)

    assert marks(path)["span"] == marks(path)["fold"]
    assert store.check().problems == ()
    assert store.journal(["quiet"]) == among_all(store, ["quiet"])
    few = steps(path, ["quiet"])
    assert 10 * few < dear
    put(store, "busy", EVERY)
    assert steps(path, ["quiet"]) == few


def test_versions_may_fold_by_turns(path: Path, store: SQLiteQueueStore) -> None:
    for number in range(4):
        with as_the_former_version():
            put(store, "quiet", number)
            put(store, "busy", EVERY)
        put(store, "quiet", number)
        put(store, "busy", EVERY)
        store.purge("other", now=NOW)

        assert store.check().problems == ()
        for queue in ("busy", "quiet"):
            assert store.journal([queue], limit=100_000) == among_all(store, [queue])
    assert marks(path)["span"] == marks(path)["fold"]


@pytest.mark.parametrize(
    "settings", [{"journal": False}, {"journal_max_rows": 500}, {"journal_max_age": 30.0}]
)
def test_spans_that_the_former_version_left_behind_are_passed_and_go(
    path: Path, store: SQLiteQueueStore, settings: dict[str, Any]
) -> None:
    store.configure("busy", {"journal_max_rows": 100_000}, now=NOW)
    put(store, "quiet", 3)
    put(store, "busy", 2 * EVERY)
    before = spans(path, "busy")
    store.configure("busy", settings, now=NOW)

    with as_the_former_version():
        for number in range(3):
            put(store, "busy", EVERY, NOW + 40 + number)

    trimmed = query(path, "SELECT max(trimmed) FROM kept")[0][0]
    assert trimmed > before[0][1], "events are gone and their spans are not"
    assert spans(path, "busy") == before
    assert store.check().problems == ()
    for queue in ("busy", "quiet"):
        assert store.journal([queue], limit=100_000) == among_all(store, [queue]) != []

    for number in range(3):
        put(store, "busy", EVERY, NOW + 80 + number)

    assert not set(before) & set(spans(path, "busy"))
    assert store.check().problems == ()
    for queue in ("busy", "quiet"):
        assert store.journal([queue], limit=100_000) == among_all(store, [queue]) != []


def test_a_copys_trimmer_does_not_stop_at_spans_that_were_left_behind(
    path: Path, store: SQLiteQueueStore, tmp_path: Path
) -> None:
    store.configure("quiet", {"journal_max_age": 10.0}, now=NOW)
    put(store, "quiet", 5)
    put(store, "busy", EVERY)
    with as_the_former_version():
        put(store, "busy", EVERY, NOW + 20)
    assert spans(path, "quiet") != []
    assert [event for event in store.journal(["quiet"]) if event.at <= NOW] == []
    store.backup(tmp_path / "copy.sqlite3")

    with SQLiteQueueStore(tmp_path / "copy.sqlite3", durability="relaxed") as copy:
        put(copy, "quiet", 5, NOW + 20)
        put(copy, "busy", EVERY, NOW + 20)
        put(copy, "busy", EVERY, NOW + 40)

        assert [event for event in copy.journal(["quiet"]) if event.at <= NOW + 20] == []
        assert copy.check().problems == ()
    assert spans(tmp_path / "copy.sqlite3", "quiet") == []


# --- other ways through the file ------------------------------------------------------------------
@pytest.mark.parametrize("former", [False, True], ids=["of one version", "of two"])
def test_spans_are_right_in_a_copy_and_in_what_is_salvaged(
    store: SQLiteQueueStore, tmp_path: Path, former: bool
) -> None:
    for _ in range(3):
        put(store, "quiet")
        put(store, "busy", EVERY)
    if former:
        with as_the_former_version():
            put(store, "quiet")
            put(store, "busy", EVERY)
    put(store, "quiet")
    store.vacuum()
    store.backup(tmp_path / "copy.sqlite3")
    assert store.salvage(tmp_path / "saved.sqlite3").ok
    told = store.journal(["quiet"])

    for name in ("copy.sqlite3", "saved.sqlite3"):
        with SQLiteQueueStore(tmp_path / name, durability="relaxed") as other:
            assert other.check().problems == ()
            assert other.journal(["quiet"])[: len(told)] == told
            put(other, "busy", EVERY)
            assert other.check().problems == ()
            assert other.journal(["quiet"]) == among_all(other, ["quiet"])
        [(longest,)] = query(tmp_path / name, "SELECT max(last - first) FROM span")
        assert longest < 2 * EVERY, "none reaches across the leap"


LATEST = "last = (SELECT max(last) FROM span WHERE queue = s.queue)"
MISTAKES: dict[str, tuple[str, set[str]]] = {
    "one too few": (f"DELETE FROM span AS s WHERE {LATEST}", {"event"}),
    "one too many": ("INSERT INTO span VALUES (2, 2, 2)", {"span"}),
    "one in another": ("INSERT INTO span VALUES (1, 7, 7)", {"span", "event"}),
    "one that is too short": (
        f"UPDATE span AS s SET first = first + 1 WHERE {LATEST} AND first < last",
        {"event"},
    ),
    "one that ends too early": (
        f"UPDATE span AS s SET last = last - 1 WHERE {LATEST} AND queue = 1",
        {"event"},
    ),
    "one that begins in another": (
        f"UPDATE span AS s SET first = 1 WHERE {LATEST} AND queue = 1",
        {"span"},
    ),
    "one that begins after its end": (
        f"UPDATE span AS s SET first = last + 1 WHERE {LATEST}",
        {"span", "event"},
    ),
    "one of another queue": (
        f"UPDATE span AS s SET queue = 3 - queue WHERE {LATEST}",
        {"span", "event"},
    ),
    "one of no queue": ("INSERT INTO span VALUES (9, 1, 1)", {"span"}),
    "one beyond the mark": (
        "INSERT INTO span SELECT queue, seq, seq FROM event ORDER BY seq DESC LIMIT 1",
        {"span"},
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_spans_that_are_not_the_journals_are_found_and_made_anew(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, mistake: str
) -> None:
    statement, tables = MISTAKES[mistake]
    for _ in range(2):
        put(store, "busy", EVERY)
        put(store, "quiet", 3)
    put(store, "busy", EVERY)
    told = store.journal(["quiet"])
    assert store.check().ok
    store.close()
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement).rowcount > 0

    with SQLiteQueueStore(path) as damaged:
        assert {problem.table for problem in damaged.check().problems} == tables
        assert damaged.salvage(tmp_path / "saved.sqlite3").ok

    with SQLiteQueueStore(tmp_path / "saved.sqlite3") as saved:
        assert saved.check().problems == ()
        assert saved.journal(["quiet"])[: len(told)] == told
