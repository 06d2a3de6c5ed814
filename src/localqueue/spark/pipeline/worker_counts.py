"""How many different workers, by Spark: HyperLogLog sketches of their names, merged.

Exact for a few dozen, within a few percent for thousands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column


def merged(sketch: str) -> Column:
    """An aggregate: one sketch of several, null when there are none."""
    return f.when(f.count(sketch) > 0, f.hll_union_agg(sketch))


def count_of(sketch: str) -> Column:
    return f.coalesce(f.hll_sketch_estimate(sketch), f.lit(0))
