"""Every named statement compiles, and none that ordinary calls run reads more than it needs."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import localqueue.stores.sqlite as package
from localqueue.stores.sqlite.sql import SQL, Queries, schema
from localqueue.stores.sqlite.verbs.alike import AT_ONCE

FIRST_ROW = "reads the first row in the order of a b-tree and stops there"
ALLOWED_SCANS = {
    "last_seq": FIRST_ROW,
    "counters": "five rows per queue, and only when a process starts to count or a fold passed it",
    "worker_leases": "one row per worker, read together with the counters",
}
"""Hot statements whose plan says SCAN although the backlog does not make them slower, and why."""


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(schema())
    yield connection
    connection.close()


def test_every_named_statement_compiles_against_the_schema(db: sqlite3.Connection) -> None:
    broken = {name: error for name in SQL.names if (error := mistake(db, getattr(SQL, name)))}

    assert broken == {}
    assert len(SQL.names) == len(set(SQL.names)) > 100


@pytest.mark.parametrize("rows", AT_ONCE)
@pytest.mark.parametrize(
    "for_several", [SQL.add_alike_messages, SQL.add_plain_messages, SQL.add_noted_events]
)
def test_the_statement_for_several_rows_compiles_too(
    db: sqlite3.Connection, for_several: Callable[[int], str], rows: int
) -> None:
    statement = for_several(rows)

    assert mistake(db, statement) is None
    assert statement.count("(?") == rows


def test_a_statement_that_does_not_fit_the_schema_is_seen(db: sqlite3.Connection) -> None:
    planted = Queries("-- name: typo\nSELECT quue FROM message WHERE id = ?\n")

    assert mistake(db, planted.typo) == "no such column: quue"


def test_no_hot_statement_scans_a_table(db: sqlite3.Connection) -> None:
    scanning = {name: found for name in SQL.hot if (found := scans(db, getattr(SQL, name)))}

    assert {name: found for name, found in scanning.items() if name not in ALLOWED_SCANS} == {}
    assert sorted(ALLOWED_SCANS) == sorted(scanning), "an exception that is not needed must go"


def test_no_hot_statement_sorts(db: sqlite3.Connection) -> None:
    sorting = {name: found for name in SQL.hot if (found := sorts(db, getattr(SQL, name)))}

    assert sorting == {}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM message WHERE state = ?",
        "SELECT count(*) FROM message",
        "SELECT id FROM message WHERE error LIKE ? ORDER BY id LIMIT 1",
        "UPDATE message SET note = NULL WHERE worker = ?",
        "DELETE FROM event WHERE kind = ?",
        "SELECT m.id FROM message AS m JOIN message AS n ON n.worker = m.worker WHERE m.id = ?",
    ],
)
def test_a_planted_statement_that_scans_is_caught(db: sqlite3.Connection, statement: str) -> None:
    planted = Queries(f"-- name: planted (hot)\n{statement}\n")

    assert planted.hot == {"planted"}
    assert scans(db, planted.planted)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM message WHERE queue = ? AND state = 0 ORDER BY created_at LIMIT ?",
        "SELECT id FROM message WHERE queue = ? AND state = 0 ORDER BY rank, pos DESC, id LIMIT ?",
        "SELECT rank, count(*) FROM message WHERE due_at = ? AND state = 1 GROUP BY rank",
        "SELECT DISTINCT worker FROM event WHERE seq > ?",
    ],
)
def test_a_planted_statement_that_sorts_is_caught(db: sqlite3.Connection, statement: str) -> None:
    planted = Queries(f"-- name: planted (hot)\n{statement}\n")

    assert planted.hot == {"planted"}
    assert sorts(db, planted.planted)


@pytest.mark.parametrize(
    "name", [name for name, reason in ALLOWED_SCANS.items() if reason == FIRST_ROW]
)
def test_a_scan_that_stops_at_its_first_row_takes_no_more_steps_with_more_rows(
    db: sqlite3.Connection, name: str
) -> None:
    fill(db, 10)
    few = steps(db, getattr(SQL, name))

    fill(db, 5_000)
    many = steps(db, getattr(SQL, name))

    assert many == few
    assert steps(db, "SELECT count(*) FROM event WHERE kind = 1") > 5_000


def test_every_named_statement_is_used_and_every_used_one_is_named() -> None:
    folder = Path(package.__path__[0])
    used = {
        name
        for path in folder.rglob("*.py")
        if path.name != "sql.py"
        for name in re.findall(r"\bSQL\.(\w+)\b", path.read_text())
    }

    # What else it has makes a statement of a named one.
    assert {name for name in used if not callable(getattr(SQL, name))} == set(SQL.names)


def plan(db: sqlite3.Connection, statement: str) -> list[str]:
    """What SQLite would do, a line per step."""
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    parameters = [None] * (max(numbered) if numbered else statement.count("?"))
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]


def mistake(db: sqlite3.Connection, statement: str) -> str | None:
    """Why the statement does not compile."""
    try:
        plan(db, statement)
    except sqlite3.Error as error:
        return str(error)
    return None


def scans(db: sqlite3.Connection, statement: str) -> list[str]:
    """Steps that read a whole table, or build an index over one first.

    The only virtual table is json_each: the list that the caller gave.
    """
    return [
        step
        for step in plan(db, statement)
        if (step.startswith("SCAN") and "VIRTUAL TABLE" not in step) or "AUTOMATIC" in step
    ]


def sorts(db: sqlite3.Connection, statement: str) -> list[str]:
    return [step for step in plan(db, statement) if "TEMP B-TREE" in step]


def fill(db: sqlite3.Connection, rows: int) -> None:
    """This many more events, delayed messages and leases."""
    numbers = json.dumps(list(range(rows)))
    start = db.execute("SELECT coalesce(max(seq), 0) + 1 FROM event").fetchone()[0]
    db.execute(
        "INSERT INTO event (seq, at, queue, kind, n, by)"
        " SELECT ? + value, value, 1, 1, 1, 0 FROM json_each(?)",
        (start, numbers),
    )
    for state in (1, 3):
        db.execute(
            "INSERT INTO message (queue, state, rank, pos, due_at, created_at, last, checksum)"
            " SELECT 1, ?, 0, value, value, value, 1, 0 FROM json_each(?)",
            (state, numbers),
        )


def steps(db: sqlite3.Connection, statement: str) -> int:
    """How many instructions of SQLite's machine the statement takes."""
    taken = 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    db.set_progress_handler(step, 1)
    db.execute(statement).fetchall()
    db.set_progress_handler(None, 1)
    return taken


def test_statements_that_are_given_ids_go_straight_to_them(db: sqlite3.Connection) -> None:
    runs = sorted(name for name in SQL.hot if "_run" in name)
    steps = {name: plan(db, getattr(SQL, name)) for name in runs}

    assert len(runs) >= 4
    assert {
        name: found
        for name, found in steps.items()
        if not any("INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in step for step in found)
    } == {}
