"""Quantiles of hours and days, by Spark: KLL sketches of microseconds, merged.

A sketch is exact up to some two hundred values. Above that, the value it gives for a rank is one
whose true rank is within about 1.5 % of it, however often sketches were merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from localqueue.spark.pipeline.kll import K
from localqueue.spark.pipeline.minutes import RANKS

if TYPE_CHECKING:
    from pyspark.sql import Column


def merged(sketch: str) -> Column:
    """An aggregate: one sketch of several, null when there are none."""
    return f.when(f.count(sketch) > 0, f.kll_merge_agg_bigint(sketch, K))


def of(sketch: str, prefix: str) -> dict[str, Column]:
    """Columns such as ``wait_p95``, in seconds; null where there is no sketch."""
    ranks = f.array(*(f.lit(rank) for rank in RANKS.values()))
    found = f.kll_sketch_get_quantile_bigint(sketch, ranks)
    return {f"{prefix}_{name}": found[index] / 1_000_000 for index, name in enumerate(RANKS)}
