"""Sketches that are made here are those of DataSketches: Spark's own functions are the judges."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from localqueue.errors import StoreUnsupported
from localqueue.spark.pipeline import hll, kll

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANKS = [0.0, 0.1, 0.5, 0.95, 0.99, 1.0]
SIZES = (1, 2, 3, 8, 199, 200, 201, 400, 1000, 30_000)
ERROR = 0.02
"""How far a rank may be off, with so many values that not all are kept."""


def durations(n: int, seed: int = 1) -> npt.NDArray[np.int64]:
    return (np.random.default_rng(seed).lognormal(0, 1, n) * 1e6).astype(np.int64)


def test_spark_reads_the_quantiles_that_we_do(spark: SparkSession) -> None:
    values = [durations(n) for n in SIZES]
    sketches = [kll.sketch_of(each) for each in values]
    sketches.append(kll.merged([*sketches, None]))
    values.append(np.concatenate(values))

    found = (
        spark.createDataFrame(list(enumerate(sketches)), "number int, sketch binary")
        .selectExpr(
            "number",
            "kll_sketch_get_n_bigint(sketch) AS n",
            f"kll_sketch_get_quantile_bigint(sketch, array({', '.join(f'{r}D' for r in RANKS)}))"
            " AS quantiles",
        )
        .orderBy("number")
        .collect()
    )

    for row, inside, sketch in zip(found, values, sketches, strict=True):
        assert row.n == len(inside)
        # It keeps the smallest and the greatest apart.
        assert (row.quantiles[0], row.quantiles[-1]) == (inside.min(), inside.max())
        assert row.quantiles[1:-1] == kll.quantiles(sketch, RANKS[1:-1])
        for rank, value in zip(RANKS, row.quantiles, strict=True):
            below, upto = (inside < value).mean(), (inside <= value).mean()
            assert below - ERROR <= rank <= upto + ERROR


def test_spark_merges_ours_and_we_merge_sparks(spark: SparkSession) -> None:
    parts = [durations(700, seed) for seed in range(40)]
    rows = [(kll.sketch_of(part),) for part in parts]
    of_spark = spark.createDataFrame(rows, "s binary").selectExpr("kll_merge_agg_bigint(s) AS s")
    theirs = bytes(of_spark.collect()[0].s)
    again = kll.merged([theirs, kll.sketch_of(durations(5000, 99))])

    together = np.concatenate([*parts, durations(5000, 99)])
    for rank, value in zip(RANKS[1:-1], kll.quantiles(again, RANKS[1:-1]), strict=True):
        assert value is not None
        assert (together <= value).mean() == pytest.approx(rank, abs=ERROR)


def test_few_values_are_all_kept_however_often_sketches_are_merged() -> None:
    values = durations(200)
    sketch = None
    for first, last in pairwise(range(0, 201, 20)):
        sketch = kll.merged([sketch, kll.sketch_of(values[first:last])])

    assert kll.merged([None, None]) is None
    assert sketch is not None
    assert sorted(np.concatenate(kll.levels_of(sketch)).tolist()) == sorted(values.tolist())


def test_errors_do_not_add_up_over_many_merges() -> None:
    sketch, parts = None, [durations(50, seed) for seed in range(400)]
    for part in parts:
        sketch = kll.merged([sketch, kll.sketch_of(part)])

    assert sketch is not None
    assert len(sketch) < 6000
    together = np.concatenate(parts)
    for rank, value in zip(RANKS[1:-1], kll.quantiles(sketch, RANKS[1:-1]), strict=True):
        assert value is not None
        assert (together <= value).mean() == pytest.approx(rank, abs=ERROR)


def test_bytes_that_are_no_sketch_are_refused() -> None:
    with pytest.raises(StoreUnsupported):
        kll.levels_of(b"not a sketch, but long enough")


def test_spark_counts_the_names_that_we_do(spark: SparkSession) -> None:
    """The same numbers for the same names, so that sketches of both can be merged."""
    from pyspark.sql import functions as f

    sizes = (1, 7, 8, 9, 96, 97, 3000)
    names = [[f"worker-{n} of a machine" for n in range(size)] for size in sizes]
    ours = [hll.sketch_of([*each, None]) for each in names]
    rows = [(size, name) for size, each in zip(sizes, names, strict=True) for name in each]

    theirs = (
        spark.createDataFrame(rows, "size int, name string")
        .groupBy("size")
        .agg(f.hll_sketch_agg("name", hll.LG_K).alias("s"))
        .collect()
    )
    made = {row.size: bytes(row.s) for row in theirs}
    told = spark.createDataFrame(list(zip(sizes, ours, strict=True)), "size int, s binary")
    estimates = told.selectExpr("size", "hll_sketch_estimate(s) AS n").collect()
    counts = {row.size: row.n for row in estimates}
    [union] = told.selectExpr("hll_sketch_estimate(hll_union_agg(s)) AS n").collect()

    for size, sketch in zip(sizes, ours, strict=True):
        assert counts[size] == pytest.approx(size, rel=0 if size < 97 else 0.05)
        assert hll.count_of(sketch) == pytest.approx(counts[size], rel=0 if size < 97 else 0.01)
        if size < 97:
            assert sketch is not None
            assert hll.numbers_of(sketch) == hll.numbers_of(made[size])
    assert union.n == pytest.approx(3000, rel=0.05)
    assert hll.count_of(hll.merged(ours)) == pytest.approx(3000, rel=0.05)
    assert hll.count_of(None) == 0
