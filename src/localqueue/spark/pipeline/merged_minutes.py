"""One row of each minute out of several: those of the table, and those that new events bring.

This runs in the driver, which has all rows of a queue that are merged, see ``backlog``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline import hll, kll
from localqueue.spark.pipeline.backlog import (
    CONFIGURES,
    IN_COUNTS,
    NEW_BELOW,
    OPEN,
    in_counts,
    levels,
)
from localqueue.spark.pipeline.definition import MOMENT
from localqueue.spark.pipeline.minutes import LEVELS, MINUTES, RANKS, SUMS
from localqueue.spark.pipeline.shapes import RowsOfShapes

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class MergedMinutes:
    """Makes rows of the table out of shapes, and of what the table has for the same minutes."""

    limits: Mapping[str, float]
    trimmed: frozenset[tuple[str, str]]

    def __call__(self, news: pa.Table, old: pa.Table) -> pa.Table:
        told = news.append_column("in_counts", in_counts(news)).combine_chunks()
        made = [RowsOfShapes(self.limits, self.trimmed)(batch) for batch in told.to_batches()]
        keys = [(name, "ascending") for name in ("store", "queue", "minute")]
        parts = pa.concat_tables([pa.Table.from_batches(made, MINUTES.schema), old])
        if not parts.num_rows:
            return parts
        return pa.Table.from_batches([_Merging(parts.sort_by(keys).combine_chunks()).rows()])


class _Merging:
    """All parts, in the order of queues and minutes."""

    def __init__(self, parts: pa.Table) -> None:
        self._parts = parts
        self._edges = _edges(parts)
        """From which part to which each minute goes."""
        self._of_minute = np.repeat(np.arange(len(self._edges) - 1), np.diff(self._edges))
        self._rows = parts.take(pa.array(self._edges[:-1]))

    def rows(self) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {name: pa.array(self._sums(name)) for name in SUMS}
        made |= {f"{state}_net": pa.array(self._sums(f"{state}_net")) for state in LEVELS}
        made["busy"] = pa.array(np.round(self._sums("busy"), 6))
        made["first_seq"] = pa.array(self._each(np.minimum, self._numbers("first_seq", _LATEST)))
        made["last_seq"] = pa.array(self._each(np.maximum, self._numbers("last_seq")))
        limits = self._each(np.maximum, self._numbers("slo_limit"))
        made["slo_limit"] = pa.array(limits, mask=limits == 0)
        made |= self._levels() | self._told_by_sketches()
        arrays = [
            made[field.name].cast(field.type)
            if field.name in made
            else self._rows[field.name].combine_chunks().cast(field.type)
            for field in MINUTES.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=MINUTES.schema)

    def _told_by_sketches(self) -> dict[str, pa.Array]:
        """One sketch of those of a minute's parts, and what it tells."""
        made: dict[str, pa.Array] = {}
        for name in ("wait", "run"):
            sketches = [kll.merged(several) for several in self._lists(f"{name}_sketch")]
            made[f"{name}_sketch"] = pa.array(sketches, pa.binary())
            told = [kll.quantiles(sketch, list(RANKS.values())) for sketch in sketches]
            for at, rank in enumerate(RANKS):
                micros = pa.array([each[at] for each in told], pa.int64())
                made[f"{name}_{rank}"] = pc.divide(micros.cast(pa.float64()), 1e6)
        crowds = [hll.merged(several) for several in self._lists("worker_sketch")]
        made["worker_sketch"] = pa.array(crowds, pa.binary())
        return made | {"workers": pa.array([hll.count_of(crowd) for crowd in crowds], pa.int64())}

    def _lists(self, name: str) -> Iterator[list[bytes | None]]:
        values = self._parts[name].to_pylist()
        for first, last in pairwise(self._edges.tolist()):
            yield values[first:last]

    def _levels(self) -> dict[str, pa.Array]:
        parts = _Parts(
            self._of_minute,
            self._numbers("until"),
            self._numbers("first_seq", _LATEST),
            self._numbers("last_seq"),
        )
        told = {state: self._parts[state].to_pylist() for state in LEVELS}
        nets = {state: self._numbers(f"{state}_net") for state in LEVELS}
        minutes = self._rows["minute"].to_pylist()
        found: dict[str, list[int | None]] = {state: [] for state in LEVELS}
        until: list[object] = []
        for first, last in self._queues():
            some = slice(int(self._edges[first]), int(self._edges[last]))
            queue = parts.of_queue(some, first, last)
            for state in LEVELS:
                found[state] += queue.levels(told[state][some], nets[state][some])
            until += [*minutes[first : last - 1], OPEN]
        made = {state: pa.array(numbers, pa.int64()) for state, numbers in found.items()}
        waiting = pc.add(pc.add(made["ready"], made["delayed"]), made["held"])
        return made | {"backlog": waiting, "until": pa.array(until, MOMENT)}

    def _queues(self) -> list[tuple[int, int]]:
        """From which minute to which each queue goes."""
        keys = zip(self._rows["store"].to_pylist(), self._rows["queue"].to_pylist(), strict=True)
        names = list(keys)
        edges = [n for n in range(1, len(names)) if names[n] != names[n - 1]]
        return list(zip([0, *edges], [*edges, len(names)], strict=True))

    def _sums(self, name: str) -> Numbers:
        return self._each(np.add, self._numbers(name))

    def _each(self, what: np.ufunc, values: Numbers) -> Numbers:
        """One number for each minute out of those of its parts."""
        found: Numbers = what.reduceat(values, self._edges[:-1])
        return found

    def _numbers(self, name: str, unknown: int = 0) -> Numbers:
        column = self._parts[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        numbers: Numbers = pc.fill_null(column, unknown).to_numpy()
        return numbers


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of all queues, or of one: which minute they are of, what they are, from where."""

    minute: Numbers
    what: Numbers
    first_seq: Numbers
    last_seq: Numbers
    minutes: int = 0

    def of_queue(self, some: slice, first: int, last: int) -> _Parts:
        return _Parts(
            self.minute[some] - first,
            self.what[some],
            self.first_seq[some],
            self.last_seq[some],
            last - first,
        )

    @property
    def new(self) -> Mask:
        return self.what < NEW_BELOW

    def levels(self, told: list[int | None], net: Numbers) -> list[int | None]:
        """The levels of one state; ``told`` is what the table has, or what was counted."""
        new = self.new
        had: list[int | None] = [None] * self.minutes
        for part in np.flatnonzero(~new):
            had[self.minute[part]] = told[part]
        first_new = int(self.minute[new].min()) if new.any() else self.minutes
        olds, news = (self._by_minute(net, some) for some in (~new, new))
        return levels(had, olds, news, self._before(told, net), first_new)

    def _by_minute(self, net: Numbers, some: Mask) -> Numbers:
        sums = np.zeros(self.minutes, np.int64)
        np.add.at(sums, self.minute[some], net[some])
        return sums

    def _before(self, told: list[int | None], net: Numbers) -> int | None:
        """The level before all new events: what was told last, less what had moved by then."""
        new = self.new
        telling = [part for part in np.flatnonzero(new) if told[part] is not None]
        if telling:
            counted = told[max(telling, key=lambda part: self.last_seq[part])]
            assert counted is not None
            return counted - int(net[new & (self.what & IN_COUNTS > 0)].sum())
        return 0 if new.all() and self._makes_the_queue() else None

    def _makes_the_queue(self) -> bool:
        """Whether the first event configures it, which for the first time makes it."""
        first = self.what[self.first_seq.argmin()]
        return bool(first & CONFIGURES)


def _edges(parts: pa.Table) -> Numbers:
    """Where the first part of each minute is, and the end."""
    changes = np.zeros(parts.num_rows, np.bool_)
    for name in ("store", "queue"):
        codes = parts[name].combine_chunks().dictionary_encode().indices.to_numpy()
        changes |= np.diff(codes, prepend=-1) != 0
    minutes = parts["minute"].cast(pa.int64()).to_numpy()
    changes |= np.diff(minutes, prepend=minutes[0] - 1) != 0
    return np.append(np.flatnonzero(changes), parts.num_rows)
