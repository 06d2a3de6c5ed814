"""The named statements of ``queries.sql``, and the schema with its migrations."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

APPLICATION_ID = 0x4C515545
"""The letters LQUE in the file's header: whose file it is."""
SCHEMA_VERSION = 5

_HERE = files("localqueue.stores.sqlite")
_NAME = re.compile(r"^-- name: (\w+)(?: +\((\w+)\))?\n", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")


class Queries:
    """Statements as attributes: ``SQL.ready_messages``. ``hot`` names those of ordinary calls."""

    def __init__(self, text: str) -> None:
        self.hot: set[str] = set()
        self._many: dict[tuple[str, int], str] = {}
        self.names: list[str] = []
        fragments: dict[str, str] = {}
        parts = _NAME.split(text)[1:]
        for name, mark, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            statement = " ".join(" ".join(lines).split()).rstrip(";")
            statement = _FRAGMENT.sub(lambda found: fragments[found[1]], statement)
            if mark == "fragment":
                fragments[name] = statement
                continue
            self.names.append(name)
            setattr(self, name, statement)
            if mark == "hot":
                self.hot.add(name)
        self._fragments = fragments

    def add_alike_messages(self, n: int) -> str:
        """``add_alike_message`` for n rows: what they share is bound once, the rest row by row."""
        return self._for_many(
            "alike_messages",
            "(?{0}, ?{0}, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?{1}, ?{2}, {room})",
            n,
            range(10, 13),
        )

    def add_plain_messages(self, n: int) -> str:
        """``add_plain_message`` for n rows."""
        row = "(?{0}, ?{0}, ?{1}, 0, 0, ?{2}, ?{2}, ?{3}, ?{4}, {room})"
        return self._for_many("plain_message", row, n, range(1, 6))

    def add_noted_events(self, n: int) -> str:
        """``add_noted_event`` for n rows."""
        events = "?{0}, ?{1}, ?{2}, ?{3}, ?{4}, ?{5}, ?{6}, ?{7}, 1, ?{8}, ?{9}, 0"
        row = f"({events}, ?{{10}}, ?{{11}}, ?{{12}})"
        return self._for_many("noted_event", row, n, range(1, 14))

    def _for_many(self, head: str, row: str, n: int, own: range) -> str:
        """``own`` are the numbers of what is bound for the first row."""
        statement = self._many.get((head, n))
        if statement is None:
            room = self._fragments["room"]
            rows = (
                row.format(*(number + at * len(own) for number in own), room=room)
                for at in range(n)
            )
            statement = f"{self._fragments[head]} VALUES {', '.join(rows)}"
            self._many[head, n] = statement
        return statement

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"queries.sql has no statement named {name!r}")


SQL = Queries(_HERE.joinpath("queries.sql").read_text())


@cache
def schema() -> str:
    return _HERE.joinpath("schema.sql").read_text()


@cache
def migration(version: int) -> str:
    """The statements that make a file of ``version - 1`` one of ``version``."""
    return _HERE.joinpath("migrations", f"{version:04}.sql").read_text()
