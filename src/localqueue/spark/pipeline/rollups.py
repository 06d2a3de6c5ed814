"""Minutes as queries see them, and put together to the hours and days that they are in.

Counts are added, sketches are merged, and the quantiles are told anew from the sketches. So an hour
is as exact as its minutes, and no event is read again for it. Rates are told of what was added up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from localqueue.spark.pipeline import quantiles, worker_counts
from localqueue.spark.pipeline.minutes import LEVELS, MINUTES, SUMS
from localqueue.spark.pipeline.rates import with_rates
from localqueue.spark.pipeline.slo import with_burn_rate
from localqueue.spark.pipeline.spans import DAY, HOUR, MINUTE, start_of_span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def minutes_with_rates(minutes: DataFrame) -> DataFrame:
    """The rows of the table, each with its rates and its burn."""
    return with_burn_rate(with_rates(minutes, MINUTE))


def hours(minutes: DataFrame) -> DataFrame:
    """One row per store, queue and hour of UTC, with the columns and rates of ``minutes``."""
    return rolled_up(minutes, "hour", HOUR)


def days(minutes: DataFrame) -> DataFrame:
    """One row per store, queue and day of UTC. Hours serve as well as minutes."""
    return rolled_up(minutes, "day", DAY)


def rolled_up(rows: DataFrame, name: str, seconds: int) -> DataFrame:
    """Spans of so many seconds, beginning at the column ``name``.

    Levels are those at the end of the span, and ``backlog_peak`` is the greatest backlog that one
    of its rows ended with.
    """
    began = next(column for column in rows.columns if column in ("minute", "hour", name))
    levels = [f.max_by(level, began).alias(level) for level in ("backlog", *LEVELS)]
    nets = [f.sum(f"{state}_net").alias(f"{state}_net") for state in LEVELS]
    peak = "backlog_peak" if "backlog_peak" in rows.columns else "backlog"
    spans = rows.groupBy("store", "queue", start_of_span(began, seconds).alias(name))
    whole = spans.agg(*added_up(), *levels, *nets, f.max(peak).alias("backlog_peak"))
    return with_burn_rate(with_rates(with_quantiles(whole), seconds))


def added_up() -> list[Column]:
    """Aggregates: what several rows say together, levels aside."""
    return [
        *(f.sum(name).alias(name) for name in SUMS),
        f.round(f.sum("busy"), 6).alias("busy"),
        f.max("slo_limit").alias("slo_limit"),
        quantiles.merged("wait_sketch").alias("wait_sketch"),
        quantiles.merged("run_sketch").alias("run_sketch"),
        worker_counts.merged("worker_sketch").alias("worker_sketch"),
        f.min("first_seq").alias("first_seq"),
        f.max("last_seq").alias("last_seq"),
    ]


def with_quantiles(rows: DataFrame) -> DataFrame:
    """With what the sketches tell: quantiles of wait and run, and how many workers."""
    return rows.withColumns(
        {
            **quantiles.of("wait_sketch", "wait"),
            **quantiles.of("run_sketch", "run"),
            "workers": worker_counts.count_of("worker_sketch"),
        }
    )


SHOWN = {MINUTES.name: minutes_with_rates, "hours": hours, "days": days}
"""What queries find under these names, out of the rows of the table ``minutes``."""
