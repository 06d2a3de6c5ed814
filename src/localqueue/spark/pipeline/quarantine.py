"""``quarantine``: rows of the journal that cannot be what a store wrote, with the reason.

An event that does not decode is here instead of in ``events``. An event whose payload or detail
alone does not decode is in ``events`` without it, and what was there is here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.events import EVENTS, STORE_DIGITS, from_journal
from localqueue.spark.pipeline.parquet_files import Rows
from localqueue.stores.sqlite.states import ACTORS, KINDS, STATE_NAMES

QUARANTINE = Definition(
    name="quarantine",
    description="Rows of the journal, or parts of them, that do not decode, and why.",
    schema=columns(
        ("store", pa.string()),
        ("shard", pa.string()),
        ("seq", pa.int64()),
        ("at", MOMENT),
        ("queue", pa.string()),
        ("reason", pa.string()),
        ("raw", pa.string()),
    ),
    statistics=("store", "shard", "seq", "at"),
    moment="at",
)

EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""Between these, the second one excluded, are the times that events can have."""

REASON = "reason"
"""Why an event is none, or null: a column that judged rows have beside those of events."""
BROKEN = "broken"
"""Which parts of a sound event do not decode, by their names, or null: another such column."""
PARTS = ("value", "detail")
"""What of an event is JSON."""

_JUDGED = EVENTS.schema.append(pa.field(REASON, pa.string())).append(
    pa.field(BROKEN, pa.list_(pa.string()))
)


def judged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the journal as rows of ``events``, each with what is wrong about it."""
    events = from_journal(batch)
    arrays = [*events.columns, _reason(events), _broken(events)]
    return pa.RecordBatch.from_arrays(arrays, schema=_JUDGED)


class OfSound:
    """A table's rows, made of the sound events alone, without their broken parts."""

    def __init__(self, rows: Rows | None = None) -> None:
        self._rows = rows

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        sound = _where(batch, pc.is_null(batch[REASON]))
        events = sound.select(EVENTS.schema.names)
        if sound[BROKEN].null_count < sound.num_rows:
            parts = sound[BROKEN].to_pylist()
            for name in PARTS:
                broken = pa.array([part is not None and name in part for part in parts])
                whole = pc.if_else(broken, None, events[name])
                events = events.set_column(events.schema.get_field_index(name), name, whole)
        return events if self._rows is None else self._rows(events)


def unsound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of ``quarantine`` that judged rows give."""
    rows = []
    wrong = pc.or_(pc.is_valid(batch[REASON]), pc.is_valid(batch[BROKEN]))
    if pc.any(wrong).as_py():
        for row in batch.filter(wrong).to_pylist():
            if row[REASON] is not None:
                rows.append(_kept(row, row[REASON], row))
            else:
                rows += [_kept(row, f"its {name} is not JSON", row[name]) for name in row[BROKEN]]
    return pa.RecordBatch.from_pylist(rows, schema=QUARANTINE.schema)


def _where(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    return batch if pc.all(mask).as_py() else batch.filter(mask)


def _kept(row: dict[str, object], reason: object, raw: object) -> dict[str, object]:
    text = raw if isinstance(raw, str) else json.dumps(raw, default=str)
    return {**{name: row[name] for name in ("store", "shard", "seq", "at", "queue")},
            REASON: reason, "raw": text}  # fmt: skip


# --- what a sound event looks like ----------------------------------------------------------------
_KINDS, _ACTORS, _STATES = pa.array(KINDS), pa.array(ACTORS), pa.array(STATE_NAMES)


def _reason(events: pa.RecordBatch) -> pa.Array:
    """The first thing that is wrong with each row."""
    reason = pa.nulls(events.num_rows, pa.string())
    for text, is_wrong in _WRONGS:
        wrong = is_wrong(events)
        if pc.any(wrong).as_py():
            reason = pc.if_else(pc.and_(wrong, pc.is_null(reason)), text, reason)
    return reason


def _unlike(name: str, known: pa.Array, *, required: bool) -> Callable[[pa.RecordBatch], pa.Array]:
    def is_wrong(events: pa.RecordBatch) -> pa.Array:
        unknown = pc.invert(pc.is_in(events[name], value_set=known))
        return unknown if required else pc.and_(unknown, pc.is_valid(events[name]))

    return is_wrong


def _null(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda events: pc.is_null(events[name])


def _impossible(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
    def is_wrong(events: pa.RecordBatch) -> pa.Array:
        early = pc.less(events[name], pa.scalar(EARLIEST, MOMENT))
        late = pc.greater_equal(events[name], pa.scalar(LATEST, MOMENT))
        return pc.fill_null(pc.or_(early, late), False)

    return is_wrong


_WRONGS: tuple[tuple[str, Callable[[pa.RecordBatch], pa.Array]], ...] = (
    ("its position is none", lambda e: pc.not_equal(pc.utf8_length(e["store"]), STORE_DIGITS)),
    ("its time is missing", _null("at")),
    ("its time cannot be", _impossible("at")),
    ("its queue is unknown", _null("queue")),
    ("its kind is unknown", _unlike("kind", _KINDS, required=True)),
    ("it leaves an unknown state", _unlike("from_state", _STATES, required=False)),
    ("it enters an unknown state", _unlike("to_state", _STATES, required=False)),
    ("its actor is unknown", _unlike("by", _ACTORS, required=True)),
    ("its number of messages is missing", _null("n")),
)


def _broken(events: pa.RecordBatch) -> pa.Array:
    """The names of the parts that are there and are no JSON; null where all is well."""
    kind = pa.list_(pa.string())
    there = [name for name in PARTS if events[name].null_count < events.num_rows]
    if not there:
        return pa.nulls(events.num_rows, kind)
    parts = [events[name].to_pylist() for name in there]
    found = []
    for texts in zip(*parts, strict=True):
        names = [name for name, text in zip(there, texts, strict=True) if not _is_json(text)]
        found.append(names or None)
    return pa.array(found, kind)


def _is_json(text: str | None) -> bool:
    if text is None:
        return True
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
