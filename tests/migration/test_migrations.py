"""Files of older versions are brought up to date when they are opened, or not at all."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from localqueue import PersistentQueue
from localqueue.errors import StoreError, StoreUnsupported
from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite import connection, sql
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.daybook.entries import size
from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.turnstile import make_lock
from localqueue.stores.sqlite.verbs.fold import EVERY

HERE = Path(__file__).parent
NOW = 1_700_000_000.0

# A queue of version 1: one message ready, one that failed twice, one inflight, one dead.
ROWS_OF_VERSION_1 = f"""
INSERT INTO identity VALUES (0, '00112233445566aa');
INSERT INTO clock VALUES (1, 'boot', 0.0);
INSERT INTO queue VALUES (1, 'jobs', '{{}}', 1, NULL);
INSERT INTO event (seq, at, queue, message, kind, to_state, n, by) VALUES
    (1, {NOW}, 1, NULL, 0, NULL, 1, 0), (2, {NOW}, 1, 2, 1, 0, 1, 0),
    (3, {NOW}, 1, 3, 1, 0, 1, 0), (4, {NOW}, 1, 4, 1, 3, 1, 0), (5, {NOW}, 1, 5, 1, 4, 1, 0);
INSERT INTO message (id, queue, state, rank, pos, due_at, created_at, attempts, failures, token,
    leased_at, last, checksum, value)
VALUES
    (2, 1, 0, 0, {NOW}, NULL, {NOW}, 0, 0, NULL, NULL, 2, 0, CAST('"fresh"' AS BLOB)),
    (3, 1, 0, 0, {NOW}, NULL, {NOW}, 2, 2, NULL, NULL, 3, 0, CAST('"failed"' AS BLOB)),
    (4, 1, 3, 0, {NOW}, {NOW + 30}, {NOW}, 1, 0, 4, {NOW}, 4, 0, CAST('"held"' AS BLOB)),
    (5, 1, 4, 0, {NOW}, NULL, {NOW}, 1, 1, NULL, NULL, 5, 0, CAST('"dead"' AS BLOB));
INSERT INTO attempt VALUES
    (3, 10, '[{{"type": "released", "at": 1.0, "attempt": 1}}]'),
    (3, 11, '[{{"type": "released", "at": 2.0, "attempt": 2}}]'),
    (5, 12, '[{{"type": "dead_lettered", "at": 3.0, "attempt": 1}}]');
"""

# A queue of version 2, folded up to 8: two lives that ended before that, one that ended after it,
# and a message that is still there.
ROWS_OF_VERSION_2 = f"""
INSERT INTO identity VALUES (0, '00112233445566aa');
INSERT INTO clock VALUES (1, 'boot', 0.0);
INSERT INTO queue VALUES (1, 'jobs', '{{}}', 1, NULL);
INSERT INTO event (seq, at, queue, message, prev, kind, from_state, to_state, n, by) VALUES
    (1, {NOW}, 1, NULL, NULL, 0, NULL, NULL, 1, 0), (2, {NOW}, 1, 2, NULL, 1, NULL, 0, 1, 0),
    (3, {NOW}, 1, 3, NULL, 1, NULL, 0, 1, 0), (4, {NOW}, 1, 4, NULL, 1, NULL, 0, 1, 0),
    (5, {NOW}, 1, 5, NULL, 1, NULL, 0, 1, 0), (6, {NOW}, 1, 3, 3, 3, 0, 3, 1, 0),
    (7, {NOW}, 1, 3, 6, 5, 3, NULL, 1, 0), (8, {NOW}, 1, 2, 2, 13, 0, NULL, 1, 1),
    (9, {NOW}, 1, NULL, NULL, 19, NULL, NULL, 1, 2), (10, {NOW}, 1, 4, 4, 3, 0, 3, 1, 0),
    (11, {NOW}, 1, 4, 10, 5, 3, NULL, 1, 0);
INSERT INTO message (id, queue, state, rank, pos, created_at, last, checksum, value)
VALUES (5, 1, 0, 0, {NOW}, {NOW}, 5, 0, CAST('"stays"' AS BLOB));
INSERT INTO counter VALUES (1, 0, 2);
INSERT INTO kept VALUES (1, 8, 0, 0);
UPDATE mark SET seq = 8 WHERE name = 'fold';
"""
# Two queues of version 3, folded up to 1,030: a busy one, one that has events in the first hundreds
# and among the last, and an event of each that is newer.
ROWS_OF_VERSION_3 = f"""
INSERT INTO identity VALUES (0, '00112233445566aa');
INSERT INTO clock VALUES (1, 'boot', 0.0);
INSERT INTO queue VALUES (1, 'busy', '{{}}', 1, NULL), (2, 'quiet', '{{}}', 1, NULL);
WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1032)
INSERT INTO event (seq, at, queue, message, kind, to_state, n, by)
SELECT n, {NOW}, CASE WHEN n IN (2, 5, 300, 1028, 1032) THEN 2 ELSE 1 END, n, 1, 0, 1, 0
FROM number;
INSERT INTO message (id, queue, state, rank, pos, created_at, last, checksum, value)
SELECT seq, queue, 0, 0, at, at, seq, 0, CAST('1' AS BLOB) FROM event;
INSERT INTO counter VALUES (1, 0, 1026), (2, 0, 4);
INSERT INTO kept VALUES (1, 1026, 0, 0), (2, 4, 0, 0);
UPDATE mark SET seq = 1030 WHERE name = 'fold';
"""
# A queue of version 4, folded up to 6: a life that is over, two messages that wait, one inflight.
ROWS_OF_VERSION_4 = f"""
INSERT INTO identity VALUES (0, '00112233445566aa');
INSERT INTO clock VALUES (1, 'boot', 0.0);
INSERT INTO queue VALUES (1, 'jobs', '{{}}', 1, NULL);
INSERT INTO event (seq, at, queue, message, prev, kind, from_state, to_state, n, by) VALUES
    (1, {NOW}, 1, NULL, NULL, 0, NULL, NULL, 1, 0), (2, {NOW}, 1, 2, NULL, 1, NULL, 0, 1, 0),
    (3, {NOW}, 1, 3, NULL, 1, NULL, 0, 1, 0), (4, {NOW}, 1, 4, NULL, 1, NULL, 0, 1, 0),
    (5, {NOW}, 1, 2, 2, 3, 0, 3, 1, 0), (6, {NOW}, 1, 2, 5, 5, 3, NULL, 1, 0),
    (7, {NOW}, 1, 7, NULL, 1, NULL, 0, 1, 0), (8, {NOW}, 1, 3, 3, 3, 0, 3, 1, 0);
INSERT INTO message (id, queue, state, rank, pos, due_at, created_at, attempts, token, leased_at,
    last, checksum, value)
VALUES
    (3, 1, 3, 0, {NOW}, {NOW + 30}, {NOW}, 1, 8, {NOW}, 8, 0, CAST('"held"' AS BLOB)),
    (4, 1, 0, 0, {NOW}, NULL, {NOW}, 0, NULL, NULL, 4, 0, CAST('"first"' AS BLOB)),
    (7, 1, 0, 0, {NOW}, NULL, {NOW}, 0, NULL, NULL, 7, 0, CAST('"second"' AS BLOB));
INSERT INTO counter VALUES (1, 0, 2);
INSERT INTO kept VALUES (1, 6, 0, 0);
INSERT INTO ended VALUES (2, 6);
INSERT INTO span VALUES (1, 6, 1);
UPDATE mark SET seq = 6;
"""
ROWS = {1: ROWS_OF_VERSION_1, 2: ROWS_OF_VERSION_2, 3: ROWS_OF_VERSION_3, 4: ROWS_OF_VERSION_4}


def make_file(path: Path, version: int, rows: str) -> Path:
    """A file as that version left it."""
    db = sqlite3.connect(path)
    db.executescript((HERE / f"schema_{version}.sql").read_text() + rows)
    db.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {version}")
    for number, queue, value in db.execute("SELECT id, queue, value FROM message").fetchall():
        sealed = _seal(value, number, queue)
        db.execute("UPDATE message SET checksum = ? WHERE id = ?", (sealed, number))
    db.commit()
    db.close()
    return path


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    """A file of version 1, with messages in every state."""
    return make_file(tmp_path / "queue.sqlite3", 1, ROWS_OF_VERSION_1)


@pytest.fixture
def file_of_version_2(tmp_path: Path) -> Path:
    """A file of version 2, with lives that are over."""
    return make_file(tmp_path / "queue.sqlite3", 2, ROWS_OF_VERSION_2)


@pytest.fixture
def file_of_version_3(tmp_path: Path) -> Path:
    """A file of version 3, with a journal of two queues."""
    return make_file(tmp_path / "queue.sqlite3", 3, ROWS_OF_VERSION_3)


@pytest.fixture
def file_of_version_4(tmp_path: Path) -> Path:
    """A file of version 4, from before there was a daybook."""
    return make_file(tmp_path / "queue.sqlite3", 4, ROWS_OF_VERSION_4)


def _seal(value: bytes, number: int, queue: int) -> int:
    from localqueue.codec import checksum
    from localqueue.stores.sqlite.rows import seal

    return seal(checksum(value, None), number, queue)


def _shape(path: Path) -> dict[str, set[tuple[str, ...]]]:
    """Tables with their columns, and indexes; the order of columns does not matter."""
    db = sqlite3.connect(path)
    names = db.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
    shape: dict[str, set[tuple[str, ...]]] = {}
    for name, kind, text in names:
        if kind == "table":
            columns = db.execute(f"PRAGMA table_info({name})").fetchall()
            shape[name] = {tuple(map(str, column[1:])) for column in columns}
        elif text is not None:
            shape[name] = {(" ".join(text.split()),)}
    db.close()
    return shape


def _version(path: Path) -> int:
    db = sqlite3.connect(path)
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    db.close()
    return version


@pytest.mark.parametrize("version", range(1, sql.SCHEMA_VERSION))
def test_a_migrated_file_has_the_shape_of_a_new_one(version: int, tmp_path: Path) -> None:
    old_file = make_file(tmp_path / "queue.sqlite3", version, ROWS[version])
    SQLiteQueueStore(old_file).queues()
    SQLiteQueueStore(tmp_path / "new.sqlite3").queues()

    assert _shape(old_file) == _shape(tmp_path / "new.sqlite3")
    assert _version(old_file) == sql.SCHEMA_VERSION


@pytest.mark.parametrize("version", range(1, sql.SCHEMA_VERSION))
def test_the_schema_of_an_old_version_is_what_its_migrations_make(
    version: int, tmp_path: Path
) -> None:
    """So that each step is tested from where it really begins."""
    step = make_file(tmp_path / "step.sqlite3", version, "")
    first = make_file(tmp_path / "first.sqlite3", 1, "")
    db = sqlite3.connect(first)
    for number in range(2, version + 1):
        db.executescript(sql.migration(number))
    db.close()

    assert _shape(first) == _shape(step)


def test_messages_of_every_state_come_through_a_migration(old_file: Path) -> None:
    store = SQLiteQueueStore(old_file)

    stats = store.stats("jobs", now=NOW)
    leased = store.lease(LeaseRequest(("jobs",), limit=10), now=NOW)

    assert (stats.ready, stats.inflight, stats.dead) == (2, 1, 1)
    assert [message.body for message in leased] == [b'"fresh"', b'"failed"']
    assert [letter.body for letter in store.dead_letters("jobs")] == [b'"dead"']


def test_receipts_of_before_the_migration_still_hold(old_file: Path) -> None:
    store = SQLiteQueueStore(old_file)

    answers = store.ack_many([Receipt("jobs", f"00112233445566aa{4:016x}", 4)], now=NOW)

    assert answers == [True]


def test_the_history_of_before_the_migration_is_shown_and_leaves_with_its_message(
    old_file: Path,
) -> None:
    store = SQLiteQueueStore(old_file)
    (_, failed) = store.lease(LeaseRequest(("jobs",), limit=2), now=NOW)

    store.ack_many([Receipt("jobs", failed.id, failed.token)], now=NOW)
    store.close()

    assert [entry["type"] for entry in failed.history] == ["released", "released", "leased"]
    db = sqlite3.connect(old_file)
    assert db.execute("SELECT DISTINCT message FROM attempt").fetchall() == [(5,)]
    db.close()


def test_lives_that_ended_before_the_migration_are_found_after_it(file_of_version_2: Path) -> None:
    store = SQLiteQueueStore(file_of_version_2)
    lives = {
        number: [e.kind for e in store.history("jobs", f"00112233445566aa{number:016x}")]
        for number in range(2, 6)
    }

    assert lives == {
        2: ["enqueued", "cancelled"],
        3: ["enqueued", "leased", "acked"],
        4: ["enqueued", "leased", "acked"],
        5: ["enqueued"],
    }
    assert store.check().problems == ()
    store.close()
    db = sqlite3.connect(file_of_version_2)
    assert db.execute("SELECT message, seq FROM ended").fetchall() == [(2, 8), (3, 7)]
    db.close()


def test_what_ended_before_the_migration_is_listed_by_the_next_fold(
    file_of_version_2: Path,
) -> None:
    store = SQLiteQueueStore(file_of_version_2)
    store.enqueue_many([Put("jobs", b"1")] * EVERY, now=NOW)

    assert [e.kind for e in store.history("jobs", f"00112233445566aa{4:016x}")][-1] == "acked"
    assert store.check().problems == ()
    store.close()
    db = sqlite3.connect(file_of_version_2)
    found = db.execute("SELECT message, seq FROM ended").fetchall()
    assert found == [(2, 8), (3, 7), (4, 11)]
    db.close()


def _positions(store: SQLiteQueueStore, queue: str) -> list[int]:
    return [int(event.position[16:], 16) for event in store.journal([queue], limit=5_000)]


def _spans(path: Path) -> list[tuple[int, int, int]]:
    db = sqlite3.connect(path)
    found = db.execute("SELECT queue, first, last FROM span ORDER BY queue, last").fetchall()
    db.close()
    return found


def test_the_journal_of_before_the_migration_has_its_spans_after_it(
    file_of_version_3: Path,
) -> None:
    quiet = [2, 5, 300, 1028, 1032]
    with SQLiteQueueStore(file_of_version_3) as store:
        told = {queue: _positions(store, queue) for queue in ("busy", "quiet")}

        assert told == {"busy": sorted({*range(1, 1033)} - {*quiet}), "quiet": quiet}
        assert store.check().problems == ()
    assert [span for span in _spans(file_of_version_3) if span[0] == 2] == [
        (2, 2, 5),
        (2, 300, 300),
        (2, 1028, 1028),
    ]


def test_what_was_not_folded_before_the_migration_is_found_after_the_next_fold(
    file_of_version_3: Path,
) -> None:
    with SQLiteQueueStore(file_of_version_3) as store:
        store.enqueue_many([Put("busy", b"1")] * EVERY, now=NOW)

        assert _positions(store, "quiet")[:5] == [2, 5, 300, 1028, 1032]
        assert len(_positions(store, "busy")) == 1032 - 5 + EVERY + 1
        assert store.check().problems == ()
    assert (2, 1032, 1032) in _spans(file_of_version_3)


def test_what_the_former_version_folds_after_the_migration_is_found(
    file_of_version_3: Path,
) -> None:
    with SQLiteQueueStore(file_of_version_3) as store:
        store.queues()
    db = sqlite3.connect(file_of_version_3)
    # It has had the file open since before that, and knows no spans.
    db.executescript("""
        UPDATE mark SET seq = 1032 WHERE name = 'fold';
        UPDATE counter SET n = n + 1;
        UPDATE kept SET n = n + 1;
    """)
    db.close()

    with SQLiteQueueStore(file_of_version_3) as store:
        assert _positions(store, "quiet") == [2, 5, 300, 1028, 1032]
        assert store.check().problems == ()

        store.enqueue_many([Put("busy", b"1")] * EVERY, now=NOW)

        assert _positions(store, "quiet")[:5] == [2, 5, 300, 1028, 1032]
        assert store.check().problems == ()
    assert (2, 1032, 1032) in _spans(file_of_version_3)


@pytest.fixture
def noted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be noted is, from the first call on."""
    monkeypatch.setattr(book, "WARM_UP", 0)


def _put_as_version_4(path: Path, *values: bytes) -> None:
    """As a process does that has had the file open since before the migration.

    It takes the same lock and leaves its name there, but knows no daybook.
    """
    companions = Companions(path)
    lock = make_lock(companions.lock, companions.turn)
    lock.acquire(time.monotonic() + 10.0)
    lock.marks()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    (newest,) = db.execute("SELECT max(seq) FROM event").fetchone()
    for number, value in enumerate(values, newest + 1):
        db.execute(
            "INSERT INTO event (seq, at, queue, message, kind, to_state, n, by)"
            " VALUES (?1, ?2, 1, ?1, 1, 0, 1, 0)",
            (number, NOW + 1),
        )
        db.execute(
            "INSERT INTO message (id, queue, state, rank, pos, created_at, last, checksum, value)"
            " VALUES (?1, 1, 0, 0, ?2, ?2, ?1, ?3, ?4)",
            (number, NOW + 1, _seal(value, number, 1), value),
        )
    db.execute("COMMIT")
    db.close()
    lock.release()
    lock.close()


def _unposted(path: Path) -> int:
    """How many events stand in the daybook alone."""
    db = sqlite3.connect(path)
    (mark,) = db.execute("SELECT seq FROM mark WHERE name = 'daybook'").fetchone()
    (bits,) = db.execute("SELECT bits FROM identity").fetchone()
    db.close()
    file = DaybookFile.open(Companions(path).daybook)
    assert file is not None
    assert file.belongs_to(bits)
    events = sum(size(entry) for entry, _ in file.entries(mark))
    file.close()
    return events


def _waiting(store: SQLiteQueueStore) -> list[bytes]:
    return [message.body for message in store.peek("jobs", 100, now=NOW + 1)]


def _migrate(path: Path) -> None:
    with SQLiteQueueStore(path) as store:
        store.queues()


def test_nothing_is_noted_until_all_have_left_who_were_there_when_a_file_was_migrated(
    file_of_version_4: Path, noted_at_once: None
) -> None:
    book_of_it = file_of_version_4.with_name(f"{file_of_version_4.name}-daybook")
    with SQLiteQueueStore(file_of_version_4) as store:
        store.enqueue_many([Put("jobs", b"1")], now=NOW + 1)
        with SQLiteQueueStore(file_of_version_4) as another:
            for _ in range(3):
                another.enqueue_many([Put("jobs", b"2")], now=NOW + 1)
            assert not book_of_it.exists()
        for _ in range(3):
            store.enqueue_many([Put("jobs", b"3")], now=NOW + 1)
        assert not book_of_it.exists()

    with SQLiteQueueStore(file_of_version_4) as store:
        for _ in range(3):
            store.enqueue_many([Put("jobs", b"4")], now=NOW + 1)
        assert _unposted(file_of_version_4) > 0


def test_a_migrated_file_has_a_daybook_that_is_posted(
    file_of_version_4: Path, noted_at_once: None
) -> None:
    _migrate(file_of_version_4)
    with SQLiteQueueStore(file_of_version_4) as store:
        store.enqueue_many([Put("jobs", b'"before"')], now=NOW + 1)
        store.enqueue_many([Put("jobs", b'"new"')], now=NOW + 1)
        leased = store.lease(LeaseRequest(("jobs",), limit=4), now=NOW + 1)
        noted = _unposted(file_of_version_4)

        assert [message.body for message in leased] == [
            b'"first"',
            b'"second"',
            b'"before"',
            b'"new"',
        ]
        assert noted == 1 + 4
        assert store.stats("jobs", now=NOW + 1).inflight == 1 + 4
        assert _unposted(file_of_version_4) == 0
        assert store.check().problems == ()


def test_what_is_noted_when_a_foreign_writer_uses_its_numbers_gets_other_ones(
    file_of_version_4: Path, noted_at_once: None
) -> None:
    _migrate(file_of_version_4)
    with SQLiteQueueStore(file_of_version_4) as store:
        store.enqueue_many([Put("jobs", b'"before"')], now=NOW + 1)
        store.enqueue_many([Put("jobs", b'"noted"')], now=NOW + 1)
        store.lease(LeaseRequest(("jobs",)), now=NOW + 1)
        noted = _unposted(file_of_version_4)

        _put_as_version_4(file_of_version_4, b'"theirs"', b'"theirs too"')
        store.enqueue_many([Put("jobs", b'"after"')], now=NOW + 1)

        assert noted == 2
        assert _waiting(store) == [
            b'"second"',
            b'"before"',
            b'"theirs"',
            b'"theirs too"',
            b'"noted"',
            b'"after"',
        ]
        assert store.stats("jobs", now=NOW + 1).inflight == 2
        assert store.check().problems == ()


def test_what_a_killed_process_noted_is_not_lost_to_a_foreign_writer(
    file_of_version_4: Path,
) -> None:
    _migrate(file_of_version_4)
    program = f"""
        import os, signal, sys
        from localqueue.message import Receipt
        from localqueue.stores.protocol import LeaseRequest, Put
        from localqueue.stores.sqlite.daybook import book
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        book.WARM_UP = 0
        store = SQLiteQueueStore(sys.argv[1])
        store.enqueue_many([Put("jobs", b'"before"')], now={NOW + 1})
        for n in range(3):
            store.enqueue_many([Put("jobs", b'"noted %d"' % n)], now={NOW + 1})
        leased = store.lease(LeaseRequest(("jobs",), limit=5), now={NOW + 1})
        ended = [Receipt("jobs", message.id, message.token) for message in leased[::2]]
        assert store.ack_many(ended, now={NOW + 1}) == [True] * 3
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(file_of_version_4)]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    noted = _unposted(file_of_version_4)
    theirs = [b'"theirs %d"' % n for n in range(5)]
    _put_as_version_4(file_of_version_4, *theirs)

    with SQLiteQueueStore(file_of_version_4) as store:
        store.enqueue_many([Put("jobs", b'"after"')], now=NOW + 1)
        later = store.peek("jobs", 100, now=NOW + 100)

        assert noted == 3 + 5 + 3
        assert _waiting(store) == [*theirs, b'"noted 2"', b'"after"']
        # Leased and not acknowledged: one of the tables, and one that was put into the book.
        assert {b'"second"', b'"noted 0"'} < {message.body for message in later}
        assert not {b'"first"', b'"before"', b'"noted 1"'} & {message.body for message in later}
        assert store.check().problems == ()


def test_a_migration_that_fails_leaves_the_old_file_as_it_was(
    old_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(version: int) -> str:
        return sql.migration(version) + "UPDATE no_such_table SET x = 1;\n"

    monkeypatch.setattr(connection, "migration", broken)
    before = _shape(old_file)

    with pytest.raises(StoreError):
        SQLiteQueueStore(old_file).queues()

    assert (_version(old_file), _shape(old_file)) == (1, before)


def test_processes_that_open_an_old_file_together_migrate_it_once(old_file: Path) -> None:
    program = (
        "import sys; from localqueue.stores.sqlite.store import SQLiteQueueStore;"
        "print(SQLiteQueueStore(sys.argv[1]).stats('jobs', now=0.0).total)"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(old_file)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]

    answers = [process.communicate(timeout=60)[0].strip() for process in running]

    assert answers == ["4"] * 4
    assert _version(old_file) == sql.SCHEMA_VERSION


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    queue: PersistentQueue[str] = PersistentQueue("jobs", store_path=path)
    queue.put("stays")
    queue.close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {sql.SCHEMA_VERSION + 1}")
    db.commit()
    db.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnsupported, match="schema version"):
        PersistentQueue[str]("jobs", store_path=path).put("refused")

    assert path.read_bytes() == before


def test_every_version_up_to_this_one_has_its_migration() -> None:
    for version in range(2, sql.SCHEMA_VERSION + 1):
        assert sql.migration(version)
