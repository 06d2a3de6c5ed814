"""``gaps``: events that were trimmed from a journal before the pipeline had read them."""

from __future__ import annotations

import pyarrow as pa

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns

GAPS = Definition(
    name="gaps",
    description="Parts of a journal that were trimmed before they were read.",
    schema=columns(
        ("store", pa.string()),
        ("shard", pa.string()),
        ("queue", pa.string()),
        # Events after this seq, up to that one, are missing; some of them, or all.
        ("after", pa.int64()),
        ("upto", pa.int64()),
        ("noticed_at", MOMENT),
    ),
    statistics=("store", "shard", "upto", "noticed_at"),
    moment="noticed_at",
)
