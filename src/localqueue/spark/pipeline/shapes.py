"""What events do to the counts of a minute. Events of the same shape do the same.

A shape is the kind of an event, the states it leaves and enters, whether it has an error, whether
it met its service level, and whether it is in what the store has counted. There are a few dozen, so
tasks only have to count shapes; what follows from them is told here, of few rows, in the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.backlog import moves
from localqueue.spark.pipeline.minutes import KINDS, MINUTES

WAITING = ("ready", "delayed", "held")
FAILURES = ("lease_expired", "dead_lettered", "quarantined")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowsOfShapes:
    """Shapes, with how many there were, as rows of ``minutes`` that add up to each minute."""

    limits: Mapping[str, float]
    trimmed: frozenset[tuple[str, str]]

    def __call__(self, shapes: pa.RecordBatch) -> pa.RecordBatch:
        n = shapes["n"].to_numpy()
        made = {name: np.where(which, n, 0) for name, which in _counted(shapes).items()}
        found: dict[str, pa.Array] = {name: pa.array(numbers) for name, numbers in made.items()}
        limits = [self.limits.get(queue) for queue in shapes["queue"].to_pylist()]
        found |= moves(shapes, self.trimmed) | {"slo_limit": pa.array(limits, pa.float64())}
        for name in shapes.schema.names:
            found.setdefault(name, shapes[name])
        arrays = [
            found[field.name].cast(field.type)
            if field.name in found
            else pa.nulls(shapes.num_rows, field.type)
            for field in MINUTES.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=MINUTES.schema)


def _counted(shapes: pa.RecordBatch) -> dict[str, Mask]:
    """Which shapes count for what. Leases and lives end as silver has it."""
    kind, left, entered = (words(shapes[name]) for name in ("kind", "from_state", "to_state"))
    ended = (left == "inflight") & (entered != "inflight")
    failed = ended & (_is(shapes["erred"], True) | np.isin(kind, FAILURES))
    dead = entered == "dead"
    gone = np.isin(left, (*WAITING, "inflight")) & (dead | (entered == ""))
    # A put to a full queue may be let go at once, or become a dead letter at once.
    never_lived = (left == "") & ((kind == "dropped") | ((kind == "enqueued") & dead))
    lives = gone | never_lived
    return {
        **{name: kind == name for name in KINDS},
        "attempts": ended,
        "failures": failed,
        "retries": failed & np.isin(entered, WAITING),
        "died": dead,
        "lives": lives,
        "slo_met": lives & _is(shapes["in_time"], True),
        "slo_missed": lives & _is(shapes["in_time"], False),
    }


def words(column: pa.Array) -> npt.NDArray[np.str_]:
    """The words of a column; null is none."""
    return np.array(pc.fill_null(column, "").to_pylist(), np.str_)


def _is(column: pa.Array, wanted: bool) -> Mask:
    found: Mask = pc.fill_null(pc.equal(column, wanted), False).to_numpy(zero_copy_only=False)
    return found
