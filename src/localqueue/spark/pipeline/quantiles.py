"""Quantiles that can be merged: KLL sketches of microseconds.

A sketch is exact up to some two hundred values. Above that, the value it gives for a rank is one
whose true rank is within about 1.5 % of it, however often sketches were merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
ACCURACY = 200


def sketch_of(seconds: Column) -> Column:
    """An aggregate: the sketch of these times, null when there are none."""
    micros = f.round(seconds * 1_000_000).cast("bigint")
    return f.when(f.count(seconds) > 0, f.kll_sketch_agg_bigint(micros, ACCURACY))


def merged(sketch: str) -> Column:
    """An aggregate: one sketch of several, null when there are none."""
    return f.when(f.count(sketch) > 0, f.kll_merge_agg_bigint(sketch, ACCURACY))


def of(sketch: str, prefix: str) -> dict[str, Column]:
    """Columns such as ``wait_p95``, in seconds; null where there is no sketch."""
    ranks = f.array(*(f.lit(rank) for rank in RANKS.values()))
    found = f.kll_sketch_get_quantile_bigint(sketch, ranks)
    return {f"{prefix}_{name}": found[index] / 1_000_000 for index, name in enumerate(RANKS)}
