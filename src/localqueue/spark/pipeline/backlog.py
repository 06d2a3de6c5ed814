"""How many messages a queue had in each state at the end of a minute.

Every event says which state it leaves and enters, so a minute's level is the one before it and what
moved. Where to begin is known in three ways: from the rows that the table has; from ``counted``,
an event with which the store tells its own counts now and then; and for a queue that was just
made, because it had nothing. A ``counted`` event is believed more than the table, so that events
that were lost to a trimmed journal or a quarantine put the levels wrong only until the next one.
Where none of it is known, levels are null.

The newest row of each queue is marked as open, by ``until``, and comes to every merge: the next row
begins from it, however long ago it was.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STATES = ("ready", "delayed", "held", "inflight", "dead")
KEYS = ("store", "queue")

OPEN = datetime(2200, 1, 1, tzinfo=UTC)
"""``until`` of a queue's newest row. Later than any event, and readers that count nanoseconds can
still show it."""
_MADE = datetime(1970, 1, 1, tzinfo=UTC)
"""``until`` of a summary of events that configure the queue; the first of them may have made it.
Other summaries have null."""


# --- of some events -------------------------------------------------------------------------------
def with_counted(events: DataFrame) -> DataFrame:
    """The events, each with the last counts that the store has told of its queue among them."""
    told = events.where("kind = 'counted' AND detail IS NOT NULL")
    last = told.groupBy(*KEYS).agg(f.max_by("detail", "seq").alias("told"), f.max("seq").alias("s"))
    counts = f.from_json("told", ", ".join(f"{state} bigint" for state in STATES))
    last = last.select(*KEYS, f.col("s").alias("counted_seq"), counts.alias("counted"))
    return events.join(f.broadcast(last), list(KEYS), "left")


def before_it_was_counted() -> Column:
    """Whether the event's part is in what was counted; null where nothing was."""
    return f.col("seq") <= f.col("counted_seq")


def what_was_counted() -> list[Column]:
    """Aggregates: the counts, where the event that told them is among the events."""
    told = f.col("seq") == f.col("counted_seq")
    return [
        f.max(f.when(told, f.col(f"counted.{state}"))).alias(f"{state}_told") for state in STATES
    ]


def moves() -> dict[str, Column]:
    """What events of one shape moved, and their part in what was there before all the events.

    Added up over all minutes of a queue, the parts are the level before the first of the events:
    what was counted, less what had moved until then. They are null where nothing was counted.
    """
    found: dict[str, Column] = {}
    for state in STATES:
        net = f.col("n") * (_is("to_state", state) - _is("from_state", state))
        told = f.coalesce(f.col(f"{state}_told"), f.lit(0))
        found[f"{state}_net"] = net
        found[state] = f.when(f.col("before"), told - net).when(~f.col("before"), f.lit(0))
    return found | {"until": f.when(f.col("kind") == "configured", f.lit(_MADE))}


def _is(column: str, state: str) -> Column:
    return f.when(f.col(column) == state, 1).otherwise(0)


# --- of summaries and rows of the table -----------------------------------------------------------
def moves_of_both() -> list[Column]:
    """Aggregates: what the rows of one minute have, apart for new ones and those of the table."""
    new = f.col("until").isNull() | (f.col("until") == f.lit(_MADE))
    columns = [
        f.max(f.when(new, 1).otherwise(0)).alias("is_new"),
        f.max(f.when(new, 0).otherwise(1)).alias("is_old"),
        (
            f.min(f.when(f.col("until") == f.lit(_MADE), f.col("first_seq"))) == f.min("first_seq")
        ).alias("is_made"),
    ]
    for state in STATES:
        level, net = f.col(state), f.col(f"{state}_net")
        columns += [
            f.sum(f.when(new, net).otherwise(0)).alias(f"{state}_news"),
            f.sum(f.when(new, 0).otherwise(net)).alias(f"{state}_olds"),
            f.sum(f.when(new, level)).alias(f"{state}_before"),
            f.max(f.when(~new, level)).alias(f"{state}_level"),
        ]
    return columns


def with_levels(rows: DataFrame) -> DataFrame:
    """Rows with ``moves_of_both``, one for each minute, with each state's level and net."""
    in_order = Window.partitionBy(*KEYS).orderBy("minute")
    whole = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    from_here = in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    later = in_order.rowsBetween(1, Window.unboundedFollowing)
    just_made = (f.sum("is_old").over(whole) == 0) & f.first("is_made").over(whole)
    has_news = f.sum("is_new").over(so_far) > 0
    found: dict[str, Column] = {}
    for state in STATES:
        level, olds = f.col(f"{state}_level"), f.col(f"{state}_olds")
        # The level before all news, as it was counted; and as the table had it.
        before = f.coalesce(f.sum(f"{state}_before").over(whole), f.when(just_made, 0))
        newest = f.last(level, ignorenulls=True).over(whole)
        put_right = f.when(has_news, f.coalesce(before - newest, f.lit(0))).otherwise(0)
        # What the table had for this minute, also where it has no row for it.
        had = f.coalesce(
            f.last(level, ignorenulls=True).over(so_far),
            f.first(level - olds, ignorenulls=True).over(from_here),
        )
        counted_back = before - f.coalesce(f.sum(olds).over(later), f.lit(0))
        news = f.sum(f"{state}_news").over(so_far)
        found[state] = f.coalesce(had + put_right, counted_back) + news
        found[f"{state}_net"] = olds + f.col(f"{state}_news")
    found["backlog"] = found["ready"] + found["delayed"] + found["held"]
    is_newest = f.lead("minute").over(in_order).isNull()
    found["until"] = f.when(is_newest, f.lit(OPEN)).otherwise(f.col("minute"))
    return rows.withColumns(found)
