"""The events of a task as shapes, with how many there were, and sketches of how long they took.

A shape is what events have to have in common so that they do the same to a minute, see ``shapes``.
It never reaches beyond a ``counted`` event, nor beyond a part of the journal that another task has:
so the driver, which knows all of them, can say of each whether it is in what the store has counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline import hll, kll
from localqueue.spark.pipeline.definition import MOMENT, columns
from localqueue.spark.pipeline.minutes import UNNAMED
from localqueue.spark.pipeline.slo import in_time

KEYS = (
    *("store", "shard", "queue", "minute", "kind", "from_state", "to_state"),
    *("erred", "in_time", "stretch"),
)
SHAPES = columns(
    ("store", pa.string()),
    ("shard", pa.string()),
    ("queue", pa.string()),
    ("minute", MOMENT),
    ("kind", pa.string()),
    ("from_state", pa.string()),
    ("to_state", pa.string()),
    ("erred", pa.bool_()),
    ("in_time", pa.bool_()),
    ("events", pa.int64()),
    ("n", pa.int64()),
    ("first_seq", pa.int64()),
    ("last_seq", pa.int64()),
    # What the store has counted, as JSON; there is one such event in a shape.
    ("told", pa.string()),
    ("busy", pa.float64()),
    ("wait_sketch", pa.binary()),
    ("run_sketch", pa.binary()),
    ("worker_sketch", pa.binary()),
)
"""Sketches are in rows of their own, one for each queue and minute, that count nothing."""

MINUTE = 60_000_000
LEAP = 1024
"""So many seqs that are missing may be another task's; those that a queue has not are fewer."""

NONE = np.iinfo(np.int64).min
"""Instead of a time that is not known: lists of numbers without nulls are arrays."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MinuteShapes:
    """Sums up events. ``limits`` are how long messages may wait, in seconds by queue."""

    limits: Mapping[str, float]

    def __call__(self) -> _Summing:
        return _Summing(self.limits)


class _Summing:
    def __init__(self, limits: Mapping[str, float]) -> None:
        self._limits = limits
        self._shapes: list[pa.Table] = []
        self._ended: list[pa.RecordBatch] = []

    def add(self, events: pa.RecordBatch) -> None:
        if not events.num_rows:
            return
        minute = _minutes(events["at"])
        left, entered = events["from_state"], events["to_state"]
        stays = pc.fill_null(pc.equal(entered, "inflight"), False)
        ended = pc.and_not(pc.fill_null(pc.equal(left, "inflight"), False), stays)
        self._shapes.append(_shapes(events, minute, ended, in_time(events, self._limits)))
        rows = events.select(["store", "queue", "seq"]).append_column("minute", minute)
        rows = rows.append_column("worker", pc.fill_null(events["worker"], UNNAMED))
        for name in ("waited", "ran"):
            rows = rows.append_column(name, _micros(events[name]))
        self._ended.append(rows.filter(ended))

    def result(self) -> pa.Table:
        if not self._shapes:
            return SHAPES.empty_table()
        return pa.concat_tables([*self._shapes, _sketches(pa.Table.from_batches(self._ended))])


def _shapes(
    events: pa.RecordBatch, minute: pa.Array, ended: pa.Array, judged: pa.Array
) -> pa.Table:
    counted = pc.equal(events["kind"], "counted")
    table = pa.table(
        {
            **{name: events[name] for name in ("store", "shard", "queue", "kind")},
            **{name: events[name] for name in ("from_state", "to_state", "n", "seq")},
            "minute": minute,
            "erred": pc.is_valid(events["error_type"]),
            "in_time": judged,
            "stretch": _stretches(events["seq"], counted),
            "told": pc.if_else(counted, events["detail"], None),
            "busy": pc.if_else(ended, events["ran"], None),
        }
    )
    found = table.group_by(list(KEYS), use_threads=False).aggregate(
        [
            *(("seq", "count"), ("n", "sum"), ("seq", "min"), ("seq", "max")),
            *(("told", "one"), ("busy", "sum")),
        ]
    )
    names = {"events": "seq_count", "n": "n_sum", "first_seq": "seq_min", "last_seq": "seq_max"}
    names |= {"told": "told_one", "busy": "busy_sum"}
    return _as_shapes(found, names)


def _stretches(seqs: pa.Array, counted: pa.Array) -> pa.Array:
    """Numbers that differ on both sides of a ``counted`` event, and of a leap."""
    numbers: Numbers = seqs.to_numpy()
    ends = counted.to_numpy(zero_copy_only=False).astype(np.int64)
    apart = np.diff(numbers, prepend=numbers[0])
    return pa.array(np.cumsum(ends) - ends + np.cumsum((apart < 0) | (apart > LEAP)))


def _sketches(ended: pa.Table) -> pa.Table:
    """One row for each queue and minute that has leases which ended."""
    keys = ["store", "queue", "minute"]
    found = ended.group_by(keys, use_threads=False).aggregate(
        [
            *(("waited", "list"), ("ran", "list"), ("worker", "distinct")),
            *(("seq", "min"), ("seq", "max")),
        ]
    )
    n = found.num_rows
    for name, column in (("wait_sketch", "waited_list"), ("run_sketch", "ran_list")):
        made = [kll.sketch_of(values[values != NONE]) for values in _lists(found[column])]
        found = found.append_column(name, pa.array(made, pa.binary()))
    crowds = [hll.sketch_of(names) for names in found["worker_distinct"].to_pylist()]
    found = found.append_column("worker_sketch", pa.array(crowds, pa.binary()))
    for name in ("events", "n"):
        found = found.append_column(name, pa.array(np.zeros(n, np.int64)))
    return _as_shapes(found, {"first_seq": "seq_min", "last_seq": "seq_max"})


def _lists(column: pa.ChunkedArray) -> list[Numbers]:
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # when there is nothing
        return []
    edges = lists.offsets.to_numpy()
    values: Numbers = lists.values.to_numpy()
    return [values[first:last] for first, last in pairwise(edges)]


def _as_shapes(found: pa.Table, names: Mapping[str, str]) -> pa.Table:
    arrays = []
    for field in SHAPES:
        name = names.get(field.name, field.name)
        there = name in found.column_names
        arrays.append(
            found[name].cast(field.type) if there else pa.nulls(found.num_rows, field.type)
        )
    return pa.Table.from_arrays(arrays, schema=SHAPES)


def _minutes(at: pa.Array) -> pa.Array:
    micros = at.cast(pa.int64()).to_numpy()
    return pa.array(micros - micros % MINUTE).cast(MOMENT)


def _micros(seconds: pa.Array) -> pa.Array:
    """Whole microseconds, or NONE."""
    exact = pc.round(pc.multiply(seconds, 1e6)).cast(pa.int64(), safe=False)
    return pc.fill_null(exact, NONE)
