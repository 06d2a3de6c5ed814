"""check() finds whatever contradicts itself, and nothing in a file that verbs have written."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from localqueue.errors import StoreBusy, StoreCorrupt
from localqueue.stores.protocol import LeaseRequest, Put, QueueStore
from localqueue.stores.sqlite.operations.check import MOST_PROBLEMS
from localqueue.stores.sqlite.operations.daybook import count_unposted
from localqueue.stores.sqlite.operations.invariants import FINDS, RULES, Bounds
from localqueue.stores.sqlite.operations.snapshot import Snapshot, in_one_snapshot
from localqueue.stores.sqlite.sql import schema
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing.random_operations import RandomOperations
from localqueue.testing.side_by_side import SideBySide
from tests.unit.stores.operations.phrases import (
    START,
    fill,
    kill_while_noting,
    of_everything,
    raw,
    value,
)
from tests.unit.stores.phrases import picture

Damage = str | Callable[[Path], None]


def in_an_index(path: Path) -> None:
    """A page of an index, which no verb reads before it needs it."""
    root = value(path, "SELECT rootpage FROM sqlite_master WHERE name = 'message_dead'")
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))


def first(what: str) -> str:
    return f"(SELECT min(id) FROM message WHERE {what})"


A_HEAD = first("key IS NOT NULL AND state IN (0, 3)")
A_HELD = first("key IS NOT NULL AND state = 2")
DAMAGE: dict[str, list[Damage]] = {
    "integrity": [in_an_index],
    "header": ["PRAGMA application_id = 7", "PRAGMA user_version = 1"],
    "identity": [
        "DELETE FROM identity",
        "UPDATE identity SET bits = 'xyz'",
        "UPDATE identity SET from_seq = 5",
        "INSERT INTO identity VALUES (100000, '0011223344556677')",
    ],
    "marks": ["INSERT INTO mark VALUES ('trim', 3)", "UPDATE mark SET seq = -1"],
    "missing marks": [
        "DELETE FROM mark",
        "DELETE FROM mark WHERE name = 'fold'",
        "DELETE FROM mark WHERE name = 'span'",
        "DELETE FROM mark WHERE name = 'daybook'",
    ],
    "order of marks": ["UPDATE mark SET seq = 9 WHERE name = 'span'"],
    "clock": ["INSERT INTO clock VALUES (1, '', 0.0)"],
    "queues": [
        "UPDATE queue SET settings = 'no json' WHERE name = 'jobs'",
        """UPDATE queue SET settings = '{"ordering": "random"}' WHERE name = 'jobs'""",
        "UPDATE queue SET name = 'a:b' WHERE name = 'jobs'",
    ],
    "references to queues": [
        "UPDATE message SET queue = 77 WHERE id = (SELECT min(id) FROM message)",
        "UPDATE message SET home = 77 WHERE id = (SELECT min(id) FROM message)",
        "UPDATE queue SET topic = 77 WHERE name = 'log.a'",
        "UPDATE dedupe SET queue = 77 WHERE key = 'k9'",
        "UPDATE event SET queue = 77 WHERE seq = 9",
        "INSERT INTO counter VALUES (77, 0, 0)",
        "UPDATE worker SET queue = 77",
        "INSERT INTO kept VALUES (77, 0, 0, 0)",
        "INSERT INTO span VALUES (77, 1, 1)",
        "INSERT INTO topic VALUES (77, 0)",
        "UPDATE subscription SET queue = 77 WHERE queue = (SELECT min(queue) FROM subscription)",
        "UPDATE subscription SET topic = 77 WHERE name = 'a'",
        "UPDATE publication SET topic = 77",
        "INSERT INTO skipped VALUES (77, 1)",
    ],
    "numbers": [
        "DELETE FROM event WHERE seq > 100",
        "UPDATE message SET last = 1000000 WHERE id = (SELECT max(id) FROM message)",
        "UPDATE message SET turn = 1000000 WHERE id = (SELECT max(id) FROM message)",
        "UPDATE publication SET seq = 1000000 WHERE offset = 20",
        "UPDATE dedupe SET message = 1000000 WHERE key = 'k9'",
        "UPDATE reader SET seq = 1000000",
        "UPDATE mark SET seq = 1000000",
        "UPDATE mark SET seq = 1000000 WHERE name = 'daybook'",
        "INSERT INTO body VALUES (1000000, x'31')",
    ],
    "state fields": [
        f"UPDATE message SET token = NULL WHERE id = {first('state = 3')}",
        f"UPDATE message SET leased_at = NULL WHERE id = {first('state = 3')}",
        f"UPDATE message SET due_at = NULL WHERE id = {first('state = 3')}",
        f"UPDATE message SET due_at = NULL WHERE id = {first('state = 1')}",
        f"UPDATE message SET token = 3 WHERE id = {first('state = 0')}",
        f"UPDATE message SET due_at = 3.0 WHERE id = {first('state = 4')}",
    ],
    "place of the value": [
        f"UPDATE message SET value = NULL WHERE id = {first('body IS NULL')}",
        f"UPDATE message SET value = x'31' WHERE id = {first('body IS NOT NULL')}",
    ],
    "checksums": [
        f"UPDATE message SET value = x'32' WHERE id = {first('body IS NULL')}",
        f"UPDATE message SET headers = x'32' WHERE id = {first('body IS NOT NULL')}",
        f"UPDATE message SET codec = 'bytes' WHERE id = {first('true')}",
        f"UPDATE message SET queue = 2 WHERE id = {first('queue <> 2')}",
        "UPDATE body SET value = x'31' WHERE id = (SELECT max(body) FROM message)",
        "DELETE FROM body WHERE id = (SELECT max(body) FROM message)",
    ],
    "key fields": [
        f"UPDATE message SET turn = NULL WHERE id = {A_HELD}",
        f"UPDATE message SET key = NULL, turn = NULL WHERE id = {A_HELD}",
    ],
    "heads of keys": [
        f"UPDATE message SET state = 0, due_at = NULL WHERE id = {A_HELD}",
        f"UPDATE message SET state = 2, due_at = 1.0 WHERE id = {A_HEAD}",
    ],
    "order of keys": [f"UPDATE message SET turn = 90000 WHERE id = {A_HEAD}"],
    "counters": [
        "INSERT INTO counter VALUES (1, 0, 1)",
        f"DELETE FROM message WHERE id = {first('state = 0')}",
        f"UPDATE message SET state = 4 WHERE id = {first('state = 0')}",
        "UPDATE mark SET seq = 60",
    ],
    "bodies": [
        "UPDATE body_use SET n = n + 1 WHERE body = (SELECT max(body) FROM message)",
        "DELETE FROM body_use WHERE body = (SELECT max(body) FROM message)",
        "DELETE FROM body WHERE id = (SELECT max(body) FROM message)",
        "INSERT INTO body VALUES (5, x'31')",
        "UPDATE event SET body = NULL WHERE body IS NOT NULL",
    ],
    "attempts": [
        "UPDATE message SET ended = ended + 1 WHERE ended > 0",
        "DELETE FROM attempt WHERE message = (SELECT max(message) FROM attempt)",
    ],
    "attempts of nobody": ["INSERT INTO attempt VALUES (99999, 1, '[]')"],
    "entries of attempts": ["UPDATE attempt SET entries = 'no json'"],
    "dedupe keys": ["UPDATE dedupe SET message = 4 WHERE key = 'k20'"],
    "dedupe keys of others": ["UPDATE dedupe SET key = 'other' WHERE key = 'k20'"],
    "kinds of dedupe keys": [
        "UPDATE dedupe SET kind = 3 WHERE key = 'k20'",
        "UPDATE dedupe SET kind = 1, expires_at = NULL WHERE key = 'k20'",
    ],
    "subscriptions": [
        "UPDATE subscription SET position = 999 WHERE name = 'a'",
        "UPDATE subscription SET until = 999 WHERE name = 'b'",
        "UPDATE subscription SET position = -1 WHERE name = 'a'",
        "DELETE FROM topic",
    ],
    "rows of subscribers": [
        "UPDATE queue SET topic = NULL WHERE name = 'log.a'",
        "DELETE FROM subscription WHERE name = 'a'",
    ],
    "logs": ["DELETE FROM publication WHERE offset = 20"],
    "skipped": [
        "INSERT INTO skipped VALUES ((SELECT id FROM queue WHERE name = 'jobs'), 3)",
        "UPDATE skipped SET offset = 999",
    ],
    "publications": [
        "UPDATE publication SET checksum = checksum + 1 WHERE offset = 20",
        "UPDATE publication SET headers = x'31' WHERE offset = 20",
        "DELETE FROM body WHERE id = (SELECT body FROM publication WHERE offset = 20)",
    ],
    "ends of logs": ["UPDATE topic SET last = 19 WHERE last = 24"],
    "events": [
        "UPDATE event SET kind = 99 WHERE seq = 9",
        "UPDATE event SET by = 9 WHERE seq = 9",
        "UPDATE event SET to_state = 9 WHERE seq = 9",
        "UPDATE event SET n = -1 WHERE seq = 9",
    ],
    "chains": [
        "UPDATE event SET prev = seq WHERE kind = 3",
        "UPDATE event SET prev = prev + 1 WHERE kind = 3",
        "DELETE FROM event WHERE seq IN (SELECT prev FROM event WHERE kind = 5)",
    ],
    "ends of lives": [
        "INSERT INTO ended VALUES (4, 1)",
        "INSERT INTO ended SELECT message, seq FROM event WHERE kind = 3",
        "INSERT INTO ended SELECT message + 1, seq FROM event WHERE kind = 5",
        "INSERT INTO ended SELECT message, max(seq) + 1 FROM event",
    ],
    "ends without a row": ["UPDATE mark SET seq = (SELECT max(seq) FROM event)"],
    "spans": ["INSERT INTO span VALUES (1, 9, 1)"],
    "events without a span": [
        "UPDATE mark SET seq = (SELECT max(seq) FROM event)",
        "UPDATE mark SET seq = (SELECT max(seq) FROM event) WHERE name = 'span'",
    ],
    "ends of chains": [
        "UPDATE message SET last = last - 1",
        "DELETE FROM event WHERE seq = (SELECT last FROM message WHERE state = 0)",
    ],
    "tokens": [
        f"UPDATE message SET token = id WHERE id = {first('state = 3')}",
        f"UPDATE message SET token = token - 1 WHERE id = {first('state = 3')}",
    ],
    "kept events": ["INSERT INTO kept VALUES (1, 3, 0, 0)", "UPDATE mark SET seq = 9"],
    "trimmed events": [
        "INSERT INTO kept VALUES (1, 0, 0, 999)",
        "INSERT INTO kept VALUES (1, 0, 999, 0)",
    ],
    "workers": ["UPDATE worker SET leases = -1"],
    "records": ["UPDATE record SET version = 0", "UPDATE record SET key = '' WHERE key = 'a'"],
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "queue.sqlite3"
    of_everything(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, sound: bytes) -> Path:
    """A file with something of everything."""
    made = tmp_path / "queue.sqlite3"
    made.write_bytes(sound)
    return made


def broken_rules(path: Path) -> dict[str, list[str]]:
    """Rule by rule, each for itself."""
    found = {}
    with closing(sqlite3.connect(path)) as db:
        bounds = Bounds.of(db)
        for name, rule in RULES.items():
            try:
                found[name] = [str(problem) for problem in rule(db, bounds)]
            except sqlite3.DatabaseError:
                continue
    return {name: problems for name, problems in found.items() if problems}


# --- a sound file ---------------------------------------------------------------------------------
def test_nothing_is_found_in_a_sound_file(path: Path) -> None:
    with SQLiteQueueStore(path) as store:
        report = store.check()

    assert report.problems == ()
    assert report.ok
    assert report.as_dict() | {"seconds": 0} == {
        "ok": True,
        "path": str(path),
        "problems": [],
        "messages": report.messages,
        "events": report.events,
        "seconds": 0,
    }
    assert report.messages > 100
    assert report.events > 200


def test_a_new_file_is_sound(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        store.queues()
        assert store.check().ok


def test_what_stands_in_the_daybook_is_posted_first(tmp_path: Path, noting: None) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path) as store, SQLiteQueueStore(path) as other:
        for number in range(5):
            store.enqueue_many([Put("jobs", b"%d" % number)], now=START)
        store.lease(LeaseRequest(("jobs",), limit=2), now=START)
        noted = count_unposted(path, 1.0)

        report = other.check()

        assert noted == 4 + 2
        assert count_unposted(path, 1.0) == 0
        assert (report.problems, report.messages, report.events) == ((), 5, 1 + 5 + 2)


def test_what_a_killed_process_has_noted_is_posted_first(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    kill_while_noting(path)

    with SQLiteQueueStore(path) as store:
        report = store.check()

    assert (report.problems, report.messages, report.events) == ((), 7, 1 + 7)


@pytest.mark.parametrize("whole", [1, 4])
def test_an_entry_that_was_cut_short_does_not_count_and_is_no_problem(
    tmp_path: Path, whole: int
) -> None:
    path = tmp_path / "queue.sqlite3"
    ids = kill_while_noting(path)
    daybook = Path(f"{path}-daybook")
    content = daybook.read_bytes()
    end = content.index(b'"noted %d"' % whole) + 3
    daybook.write_bytes(content[:end].ljust(len(content), b"\0"))

    with SQLiteQueueStore(path) as store:
        report = store.check()
        there = [message.id for message in store.peek("jobs", 9, now=START)]

    assert (report.problems, report.messages) == ((), whole)
    assert there == ids[:whole]


@pytest.mark.parametrize("seed", [31, 32])
def test_nothing_is_found_after_random_operations(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"

    def reopen(store: QueueStore) -> QueueStore:
        store.close()
        return SQLiteQueueStore(path, durability="relaxed")

    pair = SideBySide(SQLiteQueueStore(path, durability="relaxed"), reopen=reopen)
    operations = RandomOperations(seed, pair.model, pair.now)
    for number in range(1_000):
        pair.run(operations.next())
        if number % 250 == 249:
            with SQLiteQueueStore(path) as store:
                assert [str(problem) for problem in store.check().problems] == []
    pair.close()


# --- a file that is not ---------------------------------------------------------------------------
def test_every_rule_has_its_damage() -> None:
    assert list(DAMAGE) == list(RULES)


@pytest.mark.parametrize(
    ("rule", "number"),
    [(rule, number) for rule, damages in DAMAGE.items() for number in range(len(damages))],
)
def test_each_damage_is_found_by_its_rule_and_told_in_a_line(
    path: Path, rule: str, number: int
) -> None:
    assert broken_rules(path) == {}
    damage = DAMAGE[rule][number]
    if callable(damage):
        damage(path)
    else:
        with raw(path) as db:
            assert db.execute(damage).rowcount != 0

    found = broken_rules(path)

    assert rule in found
    assert all("\n" not in line and len(line) > 20 for line in found[rule])
    assert not any("{" in line for line in found[rule])


def test_the_report_says_table_row_and_what_it_means(path: Path) -> None:
    with raw(path) as db:
        (number,) = db.execute(f"SELECT {A_HELD}").fetchone()
        db.execute("UPDATE message SET state = 0, due_at = NULL WHERE id = ?", (number,))
        db.execute("DELETE FROM attempt WHERE message = (SELECT max(message) FROM attempt)")

    with SQLiteQueueStore(path) as store:
        report = store.check()

    assert not report.ok
    heads = [problem for problem in report.problems if "ordering key" in problem.sentence]
    assert len(heads) == 1
    assert heads[0].table == "message"
    assert "key" in heads[0].row
    assert (
        str(heads[0])
        == f"message {heads[0].row}: of this ordering key 2 are not held instead of one"
    )
    assert {problem.table for problem in report.problems} >= {"message", "counter"}
    assert json.loads(json.dumps(report.as_dict()))["problems"][0]["table"]


def test_what_cannot_be_read_is_a_problem_and_the_rest_is_checked(path: Path) -> None:
    root = value(path, "SELECT rootpage FROM sqlite_master WHERE name = 'message_alias'")
    table = value(path, "SELECT rootpage FROM sqlite_master WHERE name = 'dedupe'")
    with path.open("r+b") as file:
        for page in (root, table):
            file.seek((page - 1) * 4096)
            file.write(bytes(4096))
    with raw(path) as db:
        db.execute("UPDATE record SET version = 0")

    with SQLiteQueueStore(path) as store:
        lines = [str(problem) for problem in store.check().problems]

    assert any("dedupe keys cannot be checked" in line for line in lines)
    assert any("SQLite finds it damaged" in line for line in lines)
    assert any(line.startswith("record") for line in lines)


def test_a_journal_that_cannot_be_read_accuses_no_message(path: Path) -> None:
    page = value(path, "SELECT rootpage FROM sqlite_master WHERE name = 'event'") - 1
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(bytes(4096))

    with SQLiteQueueStore(path) as store:
        with pytest.raises(StoreCorrupt):
            store.queues()
        report = store.check()

    assert not report.ok
    assert {problem.table for problem in report.problems} == {"file"}
    assert report.messages > 100


def test_a_report_ends_at_a_thousand_problems(path: Path) -> None:
    with SQLiteQueueStore(path) as store:
        fill(store, 2_000)
    with raw(path) as db:
        db.execute("UPDATE message SET checksum = checksum + 1")

    with SQLiteQueueStore(path) as store:
        assert len(store.check().problems) == MOST_PROBLEMS


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite3").write_bytes(b"garbage" * 1_000)

    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store, pytest.raises(StoreCorrupt):
        store.check()


# --- how it looks ---------------------------------------------------------------------------------
def test_it_reads_one_state_while_others_write_and_changes_nothing(path: Path) -> None:
    with SQLiteQueueStore(path, durability="relaxed") as store:
        before = store.check()
        told: list[tuple[int, int]] = []

        def write(done: int, total: int) -> None:
            told.append((done, total))
            store.enqueue_many([Put("jobs", b"1", dedupe_key=f"new {done}")], now=START + 100)
            store.lease(LeaseRequest(("jobs", "keys"), limit=2), now=START + 100)

        report = store.check(on_progress=write)

        assert report.ok
        assert (report.messages, report.events) == (before.messages, before.events)
        assert told == [(done, len(RULES)) for done in range(len(RULES) + 1)]
        unseen = {name: found for name, found in picture(path.parent).items() if "-shm" not in name}
        store.check()
        assert unseen == {
            name: found for name, found in picture(path.parent).items() if "-shm" not in name
        }


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


def test_ctrl_c_ends_a_statement_however_long_it_takes(path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def work(snapshot: Snapshot) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        snapshot.db.execute(ENDLESS).fetchone()

    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_one_snapshot(path, 1.0, work)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_fork_ends_a_statement_however_long_it_takes_and_the_work_begins_anew(
    path: Path,
) -> None:
    begun, attempts, answers = threading.Event(), [], []
    snapshots: list[Snapshot] = []

    def work(snapshot: Snapshot) -> str:
        attempts.append(1)
        snapshots.append(snapshot)
        begun.set()
        if len(attempts) == 1:
            snapshot.db.execute(ENDLESS).fetchone()
        return "done"

    thread = threading.Thread(target=lambda: answers.append(in_one_snapshot(path, 1.0, work)))
    thread.start()
    begun.wait()
    # What os.fork does, without a child.
    snapshots[0].before_fork()
    snapshots[0].after_fork(in_child=False)
    thread.join()

    assert answers == ["done"]
    assert len(attempts) == 2


def test_a_file_that_another_library_has_alone_is_busy(path: Path) -> None:
    from localqueue.stores.sqlite import open_files

    stat = path.stat()
    with (
        open_files.alone((stat.st_dev, stat.st_ino)),
        SQLiteQueueStore(path) as store,
        pytest.raises(StoreBusy),
    ):
        store.check()


def test_every_statement_of_the_rules_compiles_and_is_used() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema())
        for name in FINDS.names:
            statement = getattr(FINDS, name)
            named = Bounds(0, 0, 0, 0, 0)._asdict()
            db.execute(f"EXPLAIN {statement}", [0] if "?" in statement else named)
    source = (Path(__file__).parents[4] / "src/localqueue/stores/sqlite/operations").glob("*.py")
    text = "".join(file.read_text() for file in source)

    assert [name for name in FINDS.names if f"FINDS.{name}" not in text] == []
