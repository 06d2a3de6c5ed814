"""Hours and days come of minutes: counts and rates are exact, quantiles as good as sketches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import timedelta
from math import isnan
from typing import TYPE_CHECKING, Any

import pytest

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.hll import sketch_of
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.places import Feed
from localqueue.spark.pipeline.rates import SHOWN
from localqueue.spark.pipeline.read_table import read_table
from localqueue.spark.pipeline.report import figures_of
from localqueue.spark.pipeline.report.views import make_views
from localqueue.spark.pipeline.rollups import days, hours
from localqueue.spark.pipeline.slo import with_burn_rate
from localqueue.spark.pipeline.tables import gold
from localqueue.spark.pipeline.writing import LakeWriter
from tests.pipeline.journals import HERE, START, STORE, ended, event, journal
from tests.pipeline.lakes import START as FIRST_MINUTE
from tests.pipeline.lakes import fill, minute
from tests.pipeline.queue_model import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANK_ERROR = 0.02
"""A KLL sketch of 200 is within 1.65 % of the rank, in 99 of 100 cases; the values are fixed."""


@pytest.fixture
def rows() -> list[Row]:
    """Puts and acks over more than a day; waits and runs from 1 ms up, in no order."""
    made: list[Row] = [event(1, "configured", to_state=None, at=START, detail="{}")]
    for n in range(2, 3000):
        at = START + timedelta(seconds=31 * n)
        if n % 3:
            made.append(event(n, at=at))
        else:
            waited, ran = n * 7919 % 3001 / 1000, n * 6007 % 2003 / 1000
            made.append(ended(n, at=at, worker=f"w{n % 5}", waited=waited, ran=ran))
    return made


@pytest.fixture
def minutes(spark: SparkSession, lake: Lake, rows: list[Row]) -> Iterator[DataFrame]:
    bringing = LakeWriter(spark, lake, Feed(), (), gold({"jobs": 2.0})[:1])
    bringing.expect(HERE)
    bringing.write(journal(spark, rows))
    table = lake.table("minutes")
    assert table is not None
    zone = spark.conf.get("spark.sql.session.timeZone")
    # Half an hour beside UTC: spans must not follow the session.
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    yield read_table(spark, table)
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", zone)


def check(found: DataFrame, name: str, rows: list[Row], length: timedelta) -> None:
    """Every span against the events that are in it."""
    from pyspark.sql import functions as f

    began = (f.unix_micros(name) / 1_000_000).alias("began")
    spans = {row["began"]: row.asDict() for row in found.select("*", began).collect()}
    level, left = 0, dict[float, list[Row]]()
    for row in rows:
        left.setdefault(row["at"].timestamp() // length.total_seconds(), []).append(row)
    assert sorted(spans) == sorted(n * length.total_seconds() for n in left)
    for n, inside in sorted(left.items()):
        span = spans[n * length.total_seconds()]
        ends = [row for row in inside if row["kind"] == "acked"]
        puts = [row for row in inside if row["kind"] == "enqueued"]
        level += len(puts)
        assert (span["store"], span["queue"], span["events"]) == (STORE, "jobs", len(inside))
        assert (span["acked"], span["attempts"]) == (len(ends), len(ends))
        assert (span["ready"], span["backlog"], span["backlog_peak"]) == (level, level, level)
        assert span["workers"] == len({row["worker"] for row in ends})
        assert span["busy"] == pytest.approx(sum(row["ran"] for row in ends))
        assert span["slo_met"] == sum(row["waited"] <= 2.0 for row in ends)
        assert span["slo_met"] + span["slo_missed"] == len(ends)
        for what in ("wait", "run"):
            values = sorted(row["waited" if what == "wait" else "ran"] for row in ends)
            for rank in (50, 95, 99):
                assert is_near(values, span[f"{what}_p{rank}"], rank / 100)


def is_near(values: list[float], found: float | None, rank: float) -> bool:
    if found is None:
        return not values
    low, high = bisect_left(values, found), bisect_right(values, found)
    return low / len(values) - RANK_ERROR <= rank <= high / len(values) + RANK_ERROR


def test_hours_and_days_are_the_minutes_that_are_in_them(
    minutes: DataFrame, rows: list[Row]
) -> None:
    by_hour = hours(minutes)

    check(by_hour, "hour", rows, timedelta(hours=1))
    check(days(minutes), "day", rows, timedelta(days=1))
    check(days(by_hour), "day", rows, timedelta(days=1))


def test_burn_is_one_when_just_so_many_miss_the_limit_as_may(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(95, 5), (0, 10), (0, 0)], "slo_met long, slo_missed long")

    found = [row.burn_rate for row in with_burn_rate(rows, objective=0.95).collect()]

    assert found == [pytest.approx(1.0), pytest.approx(20.0), None]
    with pytest.raises(ConfigurationError, match="a share between 0 and 1, not 95"):
        with_burn_rate(rows, objective=95)


RATES = [*SHOWN, "burn_rate"]


def busy_minute(number: int, *workers: str, **counts: Any) -> dict[str, Any]:
    crowd = sketch_of(workers) if workers else None
    return minute(number, workers=len(workers), worker_sketch=crowd, **counts)


@pytest.fixture
def some_minutes(lake: Lake) -> None:
    """Three of an hour, and one of the next day; in the last two nothing ended."""
    first = {"attempts": 10, "failures": 4, "retries": 3, "died": 1, "lives": 5, "busy": 30.0}
    second = {"attempts": 30, "failures": 0, "retries": 0, "died": 0, "lives": 15, "busy": 600.0}
    rows = [
        busy_minute(0, "w1", **first, slo_met=4, slo_missed=1),
        busy_minute(1, "w1", "w2", **second, slo_met=15, slo_missed=0),
        *(busy_minute(number, enqueued=1) for number in (2, 24 * 60)),
    ]
    fill(lake, MINUTES, rows)


def shown(spark: SparkSession, table: str, time: str) -> list[list[float | None]]:
    query = f"SELECT {', '.join(RATES)} FROM {table} ORDER BY {time}"
    return [list(row) for row in spark.sql(query).collect()]


@pytest.mark.usefixtures("some_minutes")
def test_queries_find_the_rates_of_minutes_hours_and_days(spark: SparkSession, lake: Lake) -> None:
    make_views(spark, lake)

    nothing = [None] * 5
    assert shown(spark, "minutes", "minute") == [
        [0.4, 0.3, 0.2, 0.5, pytest.approx(20.0)],
        # Leases of five minutes and more: nobody is more than busy.
        [0.0, 0.0, 0.0, 1.0, 0.0],
        nothing,
        nothing,
    ]
    together = [0.1, 0.075, 0.05]
    burnt = pytest.approx(5.0)
    assert shown(spark, "hours", "hour") == [[*together, 630 / (2 * 3600), burnt], nothing]
    assert shown(spark, "days", "day") == [[*together, 630 / (2 * 86_400), burnt], nothing]


@pytest.mark.usefixtures("some_minutes")
def test_a_report_tells_the_rates_that_queries_find(spark: SparkSession, lake: Lake) -> None:
    make_views(spark, lake)
    [*minutes, _] = shown(spark, "minutes", "minute")

    figures = figures_of(lake, until=FIRST_MINUTE + timedelta(hours=1))

    assert figures.overall is not None
    waiting, _ = figures.overall.burns(figures.slo)
    told = [*(figures.overall.rates(rate) for rate in SHOWN.values()), waiting]
    spans = [[None if isnan(rate) else rate for rate in span] for span in zip(*told, strict=True)]
    assert spans[: len(minutes)] == minutes
