"""What a read takes from the SQLite file: cells, by the table they come from.

The same cells come from several places: a message may be a row, a publication that its subscriber
has not read yet, or only what the journal says of it. So columns and filters speak of cells, and a
table says what SQL each of them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

Kind = Literal["number", "real", "text", "bytes"]

Ends = tuple[int, int]
"""The first and the last number of a range."""

TYPES: dict[Kind, pa.DataType] = {
    "number": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
}
_SAMPLES: dict[Kind, str] = {"number": "0", "real": "0.0", "text": "''", "bytes": "x''"}

MESSAGE_CELLS: dict[str, Kind] = {
    "id": "number",
    "queue": "number",
    "state": "number",
    "rank": "number",
    "pos": "real",
    "due_at": "real",
    "created_at": "real",
    "attempts": "number",
    "failures": "number",
    "crashes": "number",
    "worker": "text",
    "expires_at": "real",
    "failed_at": "real",
    "error": "text",
    "dedupe_key": "text",
    "key": "text",
    "origin": "number",
    "alias": "text",
    "codec": "text",
    "headers": "bytes",
    "value": "bytes",
    "elsewhere": "bytes",
}
"""As in the file; ``elsewhere`` is the value of a message that keeps it in the table body."""

EVENT_CELLS: dict[str, Kind] = {
    "id": "number",
    "at": "real",
    "queue": "number",
    "message": "number",
    "kind": "number",
    "from_state": "number",
    "to_state": "number",
    "n": "number",
    "attempt": "number",
    "worker": "text",
    "by": "number",
    "error_type": "text",
    "error_text": "text",
    "fingerprint": "text",
    "enqueued_at": "real",
    "leased_at": "real",
    "waited": "real",
    "elsewhere": "bytes",
    "detail": "text",
}
"""``id`` is the event's seq."""


@dataclass(frozen=True, slots=True)
class Table:
    """Where cells come from: what each is in SQL, and what stands after FROM."""

    cells: Mapping[str, str]
    source: str
    usual: Mapping[str, str] = field(default_factory=dict)
    """How a cell is in most rows. One that all rows of a range have like this need not be read: a
    null costs as much to read as any other cell, and most rows have many of them."""

    def select(
        self, wanted: Sequence[str], where: str, ends: Ends, usual: Iterable[str] = ()
    ) -> str:
        """These cells of the rows where the condition is true.

        There cells are named in braces, and the ends of the range are ``{low}`` and ``{high}``. The
        id is negative in a row that is not as usual in one of the cells of ``usual``.
        """
        tests = " AND ".join(dict.fromkeys(self.usual[name] for name in usual))
        first, *rest = (self.cells[name] for name in wanted)
        cells = [f"iif({tests}, {first}, -{first})" if tests else first, *rest]
        return f"SELECT {', '.join(cells)} FROM {self.source} WHERE {self._filled(where, ends)}"

    def select_size(self, where: str, ends: Ends) -> str:
        """How many bytes the values have that stand in the table body. It reads none of them."""
        size = self.cells["elsewhere"].replace("SELECT b.value", "SELECT length(b.value)")
        return f"SELECT total({size}) FROM {self.source} WHERE {self._filled(where, ends)}"

    def _filled(self, where: str, ends: Ends) -> str:
        return where.format(**self.cells, low=ends[0], high=ends[1])


def typed(select: str, kinds: Iterable[Kind]) -> str:
    """The statement with a row in front that shows the types of its cells.

    ADBC takes them from the first rows, and a column of nulls for numbers: then a text that comes
    later is an error.
    """
    return f"SELECT {', '.join(_SAMPLES[kind] for kind in kinds)} UNION ALL {select}"


def _own(alias: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{alias}.{name}" for name in names}


def _absent(alias: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{alias}.{name} IS NULL" for name in names}


_BODY = "(SELECT b.value FROM body AS b WHERE b.id = {})"

MESSAGES = Table(
    _own("m", MESSAGE_CELLS) | {"elsewhere": _BODY.format("m.body")},
    "message AS m",
    _absent("m", ("expires_at", "failed_at", "error", "dedupe_key", "key"))
    | _absent("m", ("origin", "alias", "codec", "headers"))
    | {
        "state": "m.state = 0",
        "rank": "m.rank = 0",
        "pos": "m.pos = m.created_at",
        # Of a message that is ready neither of them matters.
        "due_at": "m.state = 0",
        "worker": "m.state = 0",
        "attempts": "m.attempts = 0",
        "failures": "m.failures = 0",
        "crashes": "m.crashes = 0",
        "elsewhere": "m.body IS NULL",
    },
)

EVENTS = Table(
    _own("e", EVENT_CELLS) | {"id": "e.seq", "elsewhere": _BODY.format("e.body")},
    "event AS e",
    _absent("e", ("attempt", "worker", "error_type", "error_text", "fingerprint", "detail"))
    | _absent("e", ("from_state", "to_state", "enqueued_at", "leased_at", "waited"))
    | {"elsewhere": "e.body IS NULL"},
)


def publications(queue: int, subscriber: str) -> Table:
    """What a subscriber has not read, as the messages they will be for it."""
    nothing = dict.fromkeys(MESSAGE_CELLS, "NULL")
    cells = nothing | {
        "id": "p.seq",
        "queue": str(queue),
        "state": "0",
        "rank": "0",
        "pos": "p.created_at",
        "created_at": "p.created_at",
        "attempts": "0",
        "failures": "0",
        "crashes": "0",
        "expires_at": "p.expires_at",
        "dedupe_key": f"(p.dedupe_key || {subscriber})",
        "codec": "p.codec",
        "headers": "p.headers",
        "elsewhere": _BODY.format("p.body"),
    }
    return Table(cells, "publication AS p")


# The number of a message's public id, and its row: of a subscriber's message they differ.
_FOUND = (
    "coalesce((SELECT o.id FROM message AS o WHERE o.origin = e.message AND o.queue = e.queue),"
    " e.message)"
)
_KEPT = f"coalesce({_BODY.format('m.body')}, {_BODY.format('e.body')})"

ARRIVALS = Table(
    _own("m", MESSAGE_CELLS)
    | {
        "id": "e.message",
        "queue": "e.queue",
        "created_at": "coalesce(m.created_at, e.enqueued_at, e.at)",
        "origin": "NULL",
        # Empty: nobody knows it any more.
        "codec": "iif(m.id IS NULL, '', m.codec)",
        "elsewhere": _KEPT,
    },
    f"event AS e LEFT JOIN message AS m ON m.id = {_FOUND} AND m.queue = e.queue",
)
"""Events with the message that each speaks of, as far as it is still there."""
