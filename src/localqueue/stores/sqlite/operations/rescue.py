"""What can be read of a damaged file, brought into a new one as it is."""

from __future__ import annotations

import sqlite3
from typing import Any

from localqueue.stores.sqlite.operations.image import Image
from localqueue.stores.sqlite.operations.invariants import FINDS, is_sound
from localqueue.stores.sqlite.operations.layout import ALIKE, Layout, Table
from localqueue.stores.sqlite.operations.records import Damage
from localqueue.stores.sqlite.operations.trees import Lost, Pages, Row, Tree
from localqueue.stores.sqlite.sql import SCHEMA_VERSION
from localqueue.stores.sqlite.states import ACTORS, DEAD, KINDS

MADE_ANEW = ("counter", "body_use", "ended", "span")
"""Walked only to know which pages are theirs: what they say follows from the other tables."""
_BY_STATE = ("message_ready", "message_delayed", "message_lease", "message_dead", "message_keyed")
"""Each message is in one of these: together they tell which ones the table has lost."""
_NAMES = "sqlite_autoindex_queue_1"


class Rescue:
    """Reads the damaged file once, and remembers what is missing."""

    def __init__(self, image: Image, db: sqlite3.Connection) -> None:
        self._db = db
        self._pages = Pages(image)
        self.problems: list[str] = []
        self.names: dict[int, str] = {}
        """Names of queues by number, from the index on them."""
        self.lost_messages: dict[int, tuple[int | None, str]] = {}
        """By number: the queue, if it is known, and why."""
        self.publications: dict[tuple[int, int], int] = {}
        """Their numbers by topic and offset, from the index on them, when some are lost."""
        self.origins: dict[int, int] = {}
        self.aliases: dict[int, str] = {}
        self._from_orphans: set[int] = set()
        self._others: list[dict[str, Any]] = []
        described = Tree("sqlite_schema", 1, rowid=True)
        rows = list(self._pages.rows(described))
        self.layout = Layout(rows, image.header.version if image.header else SCHEMA_VERSION)
        missing = self.layout.missing
        if missing:
            which = "its tables" if len(missing) == len(self.layout.tables) else ", ".join(missing)
            self.problems.append(
                "pages that describe the file are lost:"
                f" {which} were recognised by the look of their rows"
            )
        if image.header is not None:
            self._pages.note_free_pages(image.header.first_free)
        if not self._pages.free_is_known:
            self.problems.append(
                "it is not known which pages were free: messages that had ended may be back"
            )

    @property
    def is_missing_messages(self) -> bool:
        tree = self.layout.tables["message"].tree
        return bool(tree.lost or tree.damaged)

    def last_lost_event(self, newest: int) -> int:
        """Up to where events may be missing; 0 when none is."""
        ends = [newest if lost.high is None else lost.high[0] for lost in self._events.lost]
        return min(newest, max(ends, default=0))

    @property
    def _events(self) -> Tree:
        return self.layout.tables["event"].tree

    def bring_over(self) -> None:
        for name, table in self.layout.tables.items():
            for row in self._pages.rows(table.tree):
                if name not in MADE_ANEW:
                    self._take(table, row)
        self._walk_indexes()
        self._take_orphans()
        self._choose()
        for number in list(self.lost_messages):
            if self._has(number):
                del self.lost_messages[number]
        for table in self.layout.tables.values():
            self._tell(table)

    def _take(self, table: Table, row: Row) -> None:
        """A row that a tree leads to."""
        try:
            self._insert(table.name, _possible(table.name, table.read(row)))
        except Damage as damage:
            table.tree.damaged.append((row.rowid, str(damage)))
            self._pages.doubt(row.page)
            if row.rowid is not None:
                lost = Lost((row.rowid - 1,), (row.rowid,), row.page, str(damage))
                table.tree.lost.append(lost)

    def _insert(self, table: str, values: dict[str, Any], how: str = "OR IGNORE") -> None:
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self._db.execute(
            f"INSERT {how} INTO {table} ({names}) VALUES ({marks})", [*values.values()]
        )

    # --- what the table does not have -----------------------------------------------------------
    def _walk_indexes(self) -> None:
        lost = self.lost_messages
        for number, why in self.layout.tables["message"].tree.damaged:
            if number is not None:
                lost[number] = (None, why)
        for name, tree in self.layout.indexes.items():
            for row in self._pages.rows(tree):
                match row.values:
                    case [str(text), int(number)] if name == _NAMES:
                        self.names[number] = text
                    case [int(queue), *_, int(number)] if name in _BY_STATE:
                        if self.is_missing_messages and not self._has(number):
                            lost[number] = (queue, "its row is on a page that is damaged")
                    case [int(number), int(topic), int(offset)] if name == "publication_seq":
                        if self.layout.tables["publication"].tree.lost:
                            self.publications[topic, offset] = number
                    case [int(origin), int(_), int(number)] if name == "message_origin":
                        if number in lost:
                            self.origins[number] = origin
                    case [str(alias), int(number)] if name == "message_alias":
                        if number in lost:
                            self.aliases[number] = alias

    def _take_orphans(self) -> None:
        tables = self.layout.tables
        candidates = [tables[name].tree for name in tables if name not in {*ALIKE, *MADE_ANEW}]
        for tree, row in self._pages.orphans(candidates):
            table = tables[tree.name]
            try:
                values = _possible(table.name, table.read(row))
            except Damage:
                continue
            if table.name == "message":
                self._take_orphan_message(values)
            else:
                self._insert(table.name, values)

    def _take_orphan_message(self, values: dict[str, Any]) -> None:
        """The first with its number; of others it is seen later which one is right."""
        number = values["id"]
        found = self._db.execute(FINDS.content, (number,)).fetchone()
        if found is None:
            self._from_orphans.add(number)
            self._insert("message", values)
        elif number in self._from_orphans or not _is_sound(found):
            self._others.append(values)

    def _choose(self) -> None:
        """Of several with one number take one that is sound, and of those the newest.

        One that a tree led to was there last; it gives way only when it is not sound.
        """
        for values in sorted(self._others, key=lambda values: int(values["last"])):
            number = values["id"]
            (last,) = self._db.execute(
                "SELECT last FROM message WHERE id = ?", (number,)
            ).fetchone()
            found = self._db.execute(FINDS.content, (number,)).fetchone()
            if _is_sound(found) and (number not in self._from_orphans or last >= values["last"]):
                continue
            self._db.execute("SAVEPOINT other")
            self._insert("message", values, "OR REPLACE")
            if not _is_sound(self._db.execute(FINDS.content, (number,)).fetchone()):
                self._db.execute("ROLLBACK TO other")
            self._db.execute("RELEASE other")

    def _has(self, number: int) -> bool:
        found = self._db.execute("SELECT 1 FROM message WHERE id = ?", (number,))
        return found.fetchone() is not None

    def _tell(self, table: Table) -> None:
        tree = table.tree
        if table.name in MADE_ANEW or tree.root is None:
            return
        pages = sorted({lost.page for lost in tree.lost})
        if pages:
            shown = ", ".join(map(str, pages[:10])) + (", ..." if len(pages) > 10 else "")
            self.problems.append(
                f"{table.name}: {len(pages)} damaged pages ({shown}); {len(tree.damaged)} rows on"
                " them were seen and could not be read"
            )


def _is_sound(content: tuple[Any, ...]) -> bool:
    number, queue, origin, codec, sealed, headers, value = content
    return is_sound(value, headers, codec, sealed, number, queue, origin or 0)


def _possible(table: str, values: dict[str, Any]) -> dict[str, Any]:
    """Refuse numbers that no version has written: the row is damaged where SQLite cannot see it."""
    if table == "message":
        ok = 0 <= values["state"] <= DEAD and values["rank"] <= 0 and values["id"] > 0
        counts = ("attempts", "failures", "crashes", "ended")
        ok = ok and all(0 <= values.get(name, 0) < 2**31 for name in counts)
    elif table == "event":
        states = [values[name] for name in ("from_state", "to_state")]
        ok = (
            0 <= values["kind"] < len(KINDS)
            and 0 <= values["by"] < len(ACTORS)
            and values["n"] >= 0
            and values["seq"] > 0
            and all(state is None or 0 <= state <= DEAD for state in states)
        )
    elif table == "record":
        ok = values["version"] > 0 and bool(values["kind"]) and bool(values["key"])
    elif table == "dedupe":
        ok = values["kind"] in (0, 1)
    elif table == "mark":
        ok = values["name"] in ("fold", "span", "daybook") and values["seq"] >= 0
    elif table == "clock":
        ok = values["one"] == 1 and bool(values["boot_id"])
    else:
        ok = all(value >= 0 for value in values.values() if isinstance(value, int))
    if not ok:
        raise Damage(f"a row of {table} holds what was never written")
    return values
