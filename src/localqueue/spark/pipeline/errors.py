"""Gold ``errors``: what went wrong in a queue in one hour, one row for what is alike.

Errors are alike by their fingerprint. The text and the message are those of the last one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.steps import MergeStep

ERRORS = Definition(
    name="errors",
    description="Errors of each hour and queue that are alike: how many, since when, and one.",
    schema=columns(
        ("store", pa.string()),
        ("queue", pa.string()),
        ("hour", MOMENT),
        ("fingerprint", pa.string()),
        ("error_type", pa.string()),
        ("error_text", pa.string()),
        ("count", pa.int64()),
        # How many of them made a dead letter.
        ("died", pa.int64()),
        ("first_at", MOMENT),
        ("last_at", MOMENT),
        ("message_id", pa.string()),
        ("worker", pa.string()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
    ),
    statistics=("store", "queue", "hour"),
    moment="hour",
)

_KEYS = ("store", "queue", "hour", "fingerprint")
_LAST = ("error_type", "error_text", "message_id", "worker")
"""What is told of the last one."""
_SUMMED = {
    "count": "sum",
    "died": "sum",
    "first_at": "min",
    "last_at": "max",
    "first_seq": "min",
    "last_seq": "max",
}


class _Summing:
    """Errors of one task."""

    def __init__(self) -> None:
        self._rows: list[pa.Table] = []

    def add(self, events: pa.RecordBatch) -> None:
        erred = events.filter(pc.is_valid(events["fingerprint"]))
        if not erred.num_rows:
            return
        died = pc.fill_null(pc.equal(erred["to_state"], "dead"), False)
        made = {
            "hour": _hours(erred["at"]),
            "count": erred["n"],
            "died": pc.if_else(died, erred["n"], 0),
            **dict.fromkeys(("first_at", "last_at"), erred["at"]),
            **dict.fromkeys(("first_seq", "last_seq"), erred["seq"]),
        }
        arrays = [made[n] if n in made else erred[n] for n in ERRORS.schema.names]
        self._rows.append(_merged(pa.Table.from_arrays(arrays, schema=ERRORS.schema)))

    def result(self) -> pa.Table:
        return pa.concat_tables([ERRORS.schema.empty_table(), *self._rows])


def _merge(news: pa.Table, old: pa.Table) -> pa.Table:
    return _merged(pa.concat_tables([news, old]))


def _merged(rows: pa.Table) -> pa.Table:
    """One row for those that have the same keys."""
    found = rows.sort_by("last_seq").group_by(list(_KEYS), use_threads=False)
    with_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
    summed = found.aggregate(
        [
            *((name, what) for name, what in _SUMMED.items()),
            *((name, "last", with_nulls) for name in _LAST),
        ]
    )
    made = {name: f"{name}_{what}" for name, what in _SUMMED.items()}
    made |= {name: f"{name}_last" for name in _LAST}
    arrays = [summed[made.get(f.name, f.name)].cast(f.type) for f in ERRORS.schema]
    return pa.Table.from_arrays(arrays, schema=ERRORS.schema)


def _hours(at: pa.Array) -> pa.Array:
    micros = at.cast(pa.int64()).to_numpy()
    return pa.array(micros - micros % 3_600_000_000).cast(MOMENT)


ERRORS_STEP = MergeStep(ERRORS, "hour", _Summing, _merge)
