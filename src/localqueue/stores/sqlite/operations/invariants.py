"""What must hold in a sound file, rule by rule, also where SQLite itself finds nothing wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, NamedTuple

from localqueue.checks import check_queue_name
from localqueue.codec import checksum
from localqueue.errors import LocalQueueError, StoreCorrupt
from localqueue.stores.settings import QueueSettings
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.rows import seal
from localqueue.stores.sqlite.sql import APPLICATION_ID, SCHEMA_VERSION, SQL, Queries
from localqueue.stores.sqlite.states import KINDS, STATE_NAMES

FINDS = Queries(files("localqueue.stores.sqlite.operations").joinpath("check.sql").read_text())


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """One thing that is wrong in a file, in one line."""

    table: str
    row: str
    """Which row it is, by what identifies it; empty when it is about the whole table."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.sentence}".replace(" :", ":")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Bounds(NamedTuple):
    """Numbers that the rules compare with, and the parameters of their statements."""

    newest: int
    fold: int
    span: int
    trimmed: int
    kinds: int

    @classmethod
    def of(cls, db: sqlite3.Connection) -> Bounds:
        newest = db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0]
        marks = dict(db.execute("SELECT name, seq FROM mark").fetchall())
        trimmed = db.execute("SELECT coalesce(max(trimmed), 0) FROM kept").fetchone()
        return cls(newest, marks.get("fold", 0), marks.get("span", 0), trimmed[0], len(KINDS) - 1)


UNKNOWN = Bounds(2**62, 0, 0, 2**62, len(KINDS) - 1)
"""Where they cannot be read: nothing is called wrong because of them."""
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged table may end with."""


def reraise_unless_damage(error: Exception) -> None:
    """An interrupt, a disk that fails or a lock is no finding."""
    if isinstance(error, sqlite3.OperationalError):
        raise error


Found = Iterator[CheckProblem]
Rule = Callable[[sqlite3.Connection, Bounds], Found]


def _rows(table: str, statement: str, sentence: str) -> Rule:
    """A rule that a statement finds the breaches of; the row comes first, then the words."""

    def find(db: sqlite3.Connection, bounds: Bounds) -> Found:
        for row, *words in db.execute(statement, bounds._asdict()):
            yield CheckProblem(table, str(row), sentence.format(*words))

    return find


# --- the file ---------------------------------------------------------------------------------
def _integrity(db: sqlite3.Connection, _: Bounds) -> Found:
    try:
        for (line,) in db.execute("PRAGMA integrity_check"):
            if line != "ok":
                yield CheckProblem("file", "", f"SQLite finds it damaged: {line}")
    except DAMAGE as error:
        # Some damage it only trips over.
        reraise_unless_damage(error)
        yield CheckProblem("file", "", f"SQLite finds it damaged: {error}")


def _header(db: sqlite3.Connection, _: Bounds) -> Found:
    for pragma, expected in (("application_id", APPLICATION_ID), ("user_version", SCHEMA_VERSION)):
        found = db.execute(f"PRAGMA {pragma}").fetchone()[0]
        if found != expected:
            yield CheckProblem("file", "", f"its {pragma} is {found} instead of {expected}")


def _identity(db: sqlite3.Connection, bounds: Bounds) -> Found:
    rows = db.execute(SQL.identities).fetchall()
    try:
        Identity(rows)
    except StoreCorrupt:
        yield CheckProblem("identity", "", "it is no set of bits: ids cannot be told apart")
        return
    if rows[0][0] != 0 or rows[-1][0] > bounds.newest + 1:
        yield CheckProblem(
            "identity", str(rows[0][0]), "it does not begin at 0, or begins in the future"
        )


def _missing_marks(db: sqlite3.Connection, _: Bounds) -> Found:
    for name, what in (
        ("fold", "counts cannot be brought up to date"),
        ("span", "places of events cannot be brought up to date"),
        ("daybook", "what stands in the daybook cannot be posted"),
    ):
        if db.execute(SQL.read_mark, (name,)).fetchone() is None:
            yield CheckProblem("mark", name, f"it is missing: {what}")


# --- queues -----------------------------------------------------------------------------------
def _queues(db: sqlite3.Connection, _: Bounds) -> Found:
    for number, name, text in db.execute("SELECT id, name, settings FROM queue"):
        try:
            check_queue_name(name)
            QueueSettings(**json.loads(text))
        except (LocalQueueError, TypeError, ValueError) as error:
            yield CheckProblem("queue", str(number), f"its name or settings cannot be: {error}")


_REFER_TO_QUEUES = (
    ("message", "queue"),
    ("message", "home"),
    ("queue", "topic"),
    ("dedupe", "queue"),
    ("event", "queue"),
    ("counter", "queue"),
    ("worker", "queue"),
    ("kept", "queue"),
    ("span", "queue"),
    ("topic", "queue"),
    ("subscription", "queue"),
    ("subscription", "topic"),
    ("publication", "topic"),
    ("skipped", "queue"),
)


def _unknown_queues(db: sqlite3.Connection, _: Bounds) -> Found:
    for table, column in _REFER_TO_QUEUES:
        found = db.execute(
            f"SELECT {column}, count(*) FROM {table} WHERE {column} IS NOT NULL"
            f" AND {column} NOT IN (SELECT id FROM queue) GROUP BY {column}"
        )
        for number, n in found:
            yield CheckProblem(
                table, f"{column} {number}", f"{n} rows refer to a queue that is not there"
            )


# --- messages ---------------------------------------------------------------------------------
def _messages(db: sqlite3.Connection, _: Bounds) -> Found:
    for number, queue, origin, codec, sealed, headers, value in db.execute(FINDS.contents):
        if not is_sound(value, headers, codec, sealed, number, queue, origin or 0):
            yield CheckProblem(
                "message", str(number), "value and checksum do not agree: it is not what was put"
            )


def _publications(db: sqlite3.Connection, _: Bounds) -> Found:
    for topic, offset, seq, codec, sealed, headers, value in db.execute(FINDS.published_contents):
        if not is_sound(value, headers, codec, sealed, seq, topic):
            yield CheckProblem(
                "publication",
                f"{topic} {offset}",
                "value and checksum do not agree: it is not what was published",
            )


def is_sound(value: object, headers: object, codec: str | None, sealed: int, *place: int) -> bool:
    """Whether value and headers are what was put; ``place`` is what the checksum is bound to."""
    if not isinstance(value, bytes) or not isinstance(headers, bytes | None):
        return False
    return seal(checksum(value, headers, codec), *place) == sealed


def _numbers_to_come(db: sqlite3.Connection, bounds: Bounds) -> Found:
    for table, row in db.execute(FINDS.numbers_to_come, bounds._asdict()):
        yield CheckProblem(
            table, str(row), f"it has a number after {bounds.newest}, the newest event's"
        )


def _counters(db: sqlite3.Connection, bounds: Bounds) -> Found:
    counted = {(q, s): n for q, s, n in db.execute(FINDS.counted, bounds._asdict())}
    real = {(q, s): n for q, s, n in db.execute(FINDS.real_counts)}
    for queue, state in sorted(counted.keys() | real.keys()):
        here, there = counted.get((queue, state), 0), real.get((queue, state), 0)
        if here != there:
            name = STATE_NAMES[state] if 0 <= state < len(STATE_NAMES) else f"state {state}"
            yield CheckProblem(
                "counter", f"{queue} {name}", f"{here} messages are counted, {there} are there"
            )


def _entries(db: sqlite3.Connection, _: Bounds) -> Found:
    for message, seq, text in db.execute(FINDS.entries):
        try:
            [dict(entry) for entry in json.loads(text)]
        except (TypeError, ValueError):
            yield CheckProblem("attempt", f"{message} {seq}", "its entries cannot be read")


RULES: dict[str, Rule] = {
    "integrity": _integrity,
    "header": _header,
    "identity": _identity,
    "marks": _rows("mark", FINDS.wrong_marks, "{} is no mark of ours"),
    "missing marks": _missing_marks,
    "order of marks": _rows("mark", FINDS.hasty_marks, "it is at {}, and the fold only at {}"),
    "clock": _rows("clock", FINDS.wrong_clocks, "it does not say which boot it belongs to"),
    "queues": _queues,
    "references to queues": _unknown_queues,
    "numbers": _numbers_to_come,
    "state fields": _rows(
        "message", FINDS.wrong_state_fields, "its token, lease or due time does not fit its state"
    ),
    "place of the value": _rows(
        "message",
        FINDS.wrong_place_of_value,
        "it has both a value and a body, or none",
    ),
    "checksums": _messages,
    "key fields": _rows(
        "message", FINDS.wrong_key_fields, "it has a key without a turn, or is held by no key"
    ),
    "heads of keys": _rows(
        "message", FINDS.wrong_heads, "of this ordering key {} are not held instead of one"
    ),
    "order of keys": _rows(
        "message", FINDS.late_heads, "it goes before one that came earlier with its key {!r}"
    ),
    "counters": _counters,
    "bodies": _rows(
        "body", FINDS.wrong_bodies, "it is used {} times and counted {} times; {} values are there"
    ),
    "attempts": _rows(
        "message", FINDS.wrong_attempts, "it has {} ended attempts, and {} are there"
    ),
    "attempts of nobody": _rows(
        "attempt", FINDS.attempts_of_nobody, "it belongs to a message that is not there"
    ),
    "entries of attempts": _entries,
    "dedupe keys": _rows(
        "dedupe", FINDS.keys_of_nobody, "it is kept for message {}, which is not there"
    ),
    "dedupe keys of others": _rows(
        "dedupe", FINDS.keys_of_others, "it is kept for message {}, which has another key"
    ),
    "kinds of dedupe keys": _rows(
        "dedupe", FINDS.wrong_kinds_of_key, "kind {} is unknown, or a request without an end"
    ),
    "subscriptions": _rows(
        "subscription", FINDS.wrong_subscriptions, "{!r} has read to {} (of {}); the log ends at {}"
    ),
    "rows of subscribers": _rows(
        "queue", FINDS.unlike_subscriptions, "{!r} and its subscription name different topics"
    ),
    "logs": _rows(
        "subscription", FINDS.gaps_in_logs, "{!r} has {} publications to read, and {} are there"
    ),
    "skipped": _rows("skipped", FINDS.skipped_by_nobody, "no subscriber will ever come to it"),
    "publications": _publications,
    "ends of logs": _rows(
        "publication", FINDS.publications_to_come, "it is after {}, where its log ends"
    ),
    "events": _rows("event", FINDS.wrong_events, "its kind, actor, state or number cannot be"),
    "chains": _rows("event", FINDS.broken_chains, "the event before it, {}, is not of its message"),
    "ends of lives": _rows(
        "ended", FINDS.wrongly_listed_ends, "event {} does not end this life, or is not there"
    ),
    "ends without a row": _rows(
        "event", FINDS.unlisted_ends, "it ends the life of {}, and is not listed with it"
    ),
    "spans": _rows(
        "span",
        FINDS.wrong_spans,
        "from {} to {} is in another one, or ends with no event of its queue",
    ),
    "events without a span": _rows(
        "event", FINDS.events_outside, "it is in no span of its queue, {}: its readers pass it"
    ),
    "ends of chains": _rows(
        "message", FINDS.wrong_ends, "its newest event, {}, is missing or of another message"
    ),
    "tokens": _rows("message", FINDS.wrong_tokens, "no event leased it with its token {}"),
    "kept events": _rows(
        "kept", FINDS.wrong_kept, "{} events are counted, {} are there up to the fold"
    ),
    "trimmed events": _rows(
        "kept", FINDS.passed_events, "trimmed to {}, looked at to {}, and its first event is {}"
    ),
    "workers": _rows("worker", FINDS.wrong_workers, "it cannot have taken {} leases"),
    "records": _rows("record", FINDS.wrong_records, "a record cannot have the version {}"),
}
"""Each with a name, for progress and tests."""
