"""The columns of the journal, made of the cells of its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.read.arrow_columns import (
    TIMESTAMP,
    json_texts,
    nothing,
    public_ids,
    repeated,
    timestamps,
    words,
)
from localqueue.spark.read.cells import Cells
from localqueue.spark.read.filters import (
    Column,
    Identifier,
    Plain,
    Word,
    micros,
    number,
    seconds,
    text,
    time,
)
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.states import ACTORS, KINDS, STATE_NAMES

SHARD = "0"
"""A file is one shard."""

NEEDS: dict[str, tuple[str, ...]] = {
    "position": (),
    "seq": (),
    "shard": (),
    "message_id": ("message",),
    "ran": ("at", "leased_at"),
    "value": ("elsewhere",),
    "body": ("elsewhere",),
}
"""The cells that a column is made of, where it is not just the cell of its name."""


def _words(name: str, known: Sequence[str]) -> Callable[[Cells], pa.Array]:
    def column(cells: Cells) -> pa.Array:
        numbers = cells.get(name)
        return nothing(pa.string(), cells.rows) if numbers is None else words(numbers, known)

    return column


def _time(name: str) -> Callable[[Cells], pa.Array]:
    def column(cells: Cells) -> pa.Array:
        moment = cells.get(name)
        return nothing(TIMESTAMP, cells.rows) if moment is None else timestamps(moment)

    return column


def _cell(name: str, kind: pa.DataType) -> Callable[[Cells], pa.Array]:
    return lambda cells: cells.of(name, kind)


def _ran(cells: Cells) -> pa.Array:
    leased_at = cells.get("leased_at")
    if leased_at is None:
        return nothing(pa.float64(), cells.rows)
    ran = pc.subtract(cells["at"], leased_at)
    return pc.max_element_wise(ran, 0.0, skip_nulls=False)


def _body(cells: Cells) -> pa.Array:
    return cells.of("elsewhere", pa.binary())


def _value(cells: Cells) -> pa.Array:
    """The kept payload. The journal does not know its codec: what is no text is left out."""
    return json_texts(_body(cells), lambda: cells["id"], strict=False)


COLUMNS: dict[str, Callable[[Cells], pa.Array]] = {
    "position": lambda cells: public_ids(cells["id"], cells.identity),
    "seq": lambda cells: cells["id"],
    "shard": lambda cells: repeated(SHARD, cells.rows),
    "at": _time("at"),
    "queue": Cells.queue_names,
    "message_id": lambda cells: public_ids(cells["message"], cells.identity),
    "kind": _words("kind", KINDS),
    "from_state": _words("from_state", STATE_NAMES),
    "to_state": _words("to_state", STATE_NAMES),
    "n": _cell("n", pa.int64()),
    "attempt": _cell("attempt", pa.int32()),
    "worker": _cell("worker", pa.string()),
    "by": _words("by", ACTORS),
    "error_type": _cell("error_type", pa.string()),
    "error_text": _cell("error_text", pa.string()),
    "fingerprint": _cell("fingerprint", pa.string()),
    "enqueued_at": _time("enqueued_at"),
    "leased_at": _time("leased_at"),
    "waited": _cell("waited", pa.float64()),
    "ran": _ran,
    "value": _value,
    "detail": _cell("detail", pa.string()),
    "body": _body,
}


def filterable(identity: Identity, queues: Mapping[int, str]) -> dict[str, Column]:
    """The columns by which the store can choose."""

    def is_one_of(cell: str) -> Callable[[Sequence[str]], str]:
        def condition(wanted: Sequence[str]) -> str:
            seqs = [seq for one in wanted if (seq := identity.seq(one)) is not None]
            return f"{cell} IN ({', '.join(map(str, seqs))})"

        return condition

    return {
        "position": Identifier(is_one_of("{id}")),
        "seq": Plain("{id}", number),
        "shard": Word("0", {0: SHARD}),
        "at": Plain(micros("{at}"), time),
        "queue": Word("{queue}", queues),
        "message_id": Identifier(is_one_of("{message}")),
        "kind": Word("{kind}", dict(enumerate(KINDS))),
        "from_state": Word("{from_state}", dict(enumerate(STATE_NAMES))),
        "to_state": Word("{to_state}", dict(enumerate(STATE_NAMES))),
        "n": Plain("{n}", number),
        "attempt": Plain("{attempt}", number),
        "worker": Plain("{worker}", text, is_text=True),
        "by": Word("{by}", dict(enumerate(ACTORS))),
        "error_type": Plain("{error_type}", text, is_text=True),
        "error_text": Plain("{error_text}", text, is_text=True),
        "fingerprint": Plain("{fingerprint}", text, is_text=True),
        "enqueued_at": Plain(micros("{enqueued_at}"), time),
        "leased_at": Plain(micros("{leased_at}"), time),
        "waited": Plain("{waited}", seconds),
    }
