"""How many messages a queue had in each state at the end of a minute.

Every event says which state it leaves and enters, so a minute's level is the one before it and what
moved. Where to begin is known in three ways: from the rows that the table has; from ``counted``,
an event with which the store tells its own counts now and then; and for a queue that was just
made, because it had nothing: that is, when the first event configures it and the journal was not
trimmed before. A ``counted`` event is believed more than the table, so that events
that were lost to a trimmed journal or a quarantine put the levels wrong only until the next one.
Where none of it is known, levels are null, and a minute that is over may stay so.

When a store counts, it tells the counts of all queues that changed since it last did. A queue's
events up to its last ``counted`` event are in the counts, the others are not. A batch may end
between the ``counted`` events of two queues, so that of another queue says nothing.

The newest row of each queue is marked as open, by ``until``, and comes to every merge: the next row
begins from it, however long ago it was.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.definition import MOMENT
from localqueue.spark.pipeline.minutes import LEVELS

OPEN = datetime(2200, 1, 1, tzinfo=UTC)
"""``until`` of a queue's newest row. Later than any event, and readers that count nanoseconds can
still show it."""

# A row that is made of new events has in ``until`` what they are; one of the table has a time.
NEW, CONFIGURES, IN_COUNTS = 1, 2, 4
NEW_BELOW = 8
"""Microseconds since 1970."""

Numbers = npt.NDArray[np.int64]


def in_counts(shapes: pa.Table) -> pa.Array:
    """Whether each shape is in what its store has counted, as far as these shapes tell it."""
    keys = ["store", "shard", "queue"]
    told = shapes.filter(pc.is_valid(shapes["told"])).group_by(keys)
    last = {
        tuple(row[key] for key in keys): row["last_seq_max"]
        for row in told.aggregate([("last_seq", "max")]).to_pylist()
    }
    each = zip(*(shapes[key].to_pylist() for key in keys), strict=True)
    upto = np.array([last.get(queue, 0) for queue in each], np.int64)
    return pa.array(shapes["last_seq"].to_numpy() <= upto)


def moves(shapes: pa.RecordBatch, trimmed: Collection[tuple[str, str]]) -> dict[str, pa.Array]:
    """What shapes do to levels: nets, the counts where they were told, and what they are.

    An event that configures a queue makes it only if the journal still has the first one of it.
    """
    n = shapes["n"].to_numpy()
    told = [{} if text is None else json.loads(text) for text in shapes["told"].to_pylist()]
    found: dict[str, pa.Array] = {}
    for state in LEVELS:
        change = _ones(shapes["to_state"], state) - _ones(shapes["from_state"], state)
        found[f"{state}_net"] = pa.array(n * change)
        found[state] = pa.array([counts.get(state) for counts in told], pa.int64())
    queues = zip(shapes["store"].to_pylist(), shapes["queue"].to_pylist(), strict=True)
    whole = np.array([queue not in trimmed for queue in queues], np.int64)
    what = NEW + CONFIGURES * whole * _ones(shapes["kind"], "configured")
    what += IN_COUNTS * _ones(shapes["in_counts"], True)
    return found | {"until": pa.array(what, pa.int64()).cast(MOMENT)}


def _ones(column: pa.Array, wanted: str | bool) -> Numbers:
    """1 where the column is so, 0 elsewhere."""
    ones: Numbers = pc.fill_null(pc.equal(column, wanted), False).cast(pa.int64()).to_numpy()
    return ones


def levels(
    had: list[int | None], olds: Numbers, news: Numbers, before: int | None, first_new: int
) -> list[int | None]:
    """The levels of one state of one queue at the end of each of its minutes.

    ``had`` is what the table has, None where it does not know or has no row. ``olds`` and ``news``
    are what moved, in events that the table has and in new ones. ``before`` is the level before
    all new events if it was told, and ``first_new`` the first minute that has some.
    """
    known = [minute for minute, level in enumerate(had) if level is not None]
    wrong = 0
    if known:
        then = _carried(had, known, np.cumsum(olds))
        if before is not None:
            wrong = before - then[-1]
    elif before is not None:
        # Back from there, through events that came when nothing was known.
        then = _carried([*had[:-1], before], [len(had) - 1], np.cumsum(olds))
    else:
        return list(had)
    new = np.cumsum(news).tolist()
    return [
        level + new[minute] + (wrong if minute >= first_new else 0)
        for minute, level in enumerate(then)
    ]


def _carried(had: Sequence[int | None], known: list[int], moved: Numbers) -> list[int]:
    """What the table would have for every minute: as the last that is known, or else the first."""
    nearest, found = known[0], list[int]()
    for minute, sofar in enumerate(moved.tolist()):
        if had[minute] is not None:
            nearest = minute
        found.append((had[nearest] or 0) + sofar - int(moved[nearest]))
    return found
