"""How a table gets its rows: by looking at each event alone, or by merging with what is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.parquet_files import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class RowStep:
    """Appends. Each row comes of one event, so it needs no other rows and no state.

    ``rows`` is given Arrow batches of sound events, and runs on executors in the same pass that
    writes ``events``; it keeps ``store``, ``shard`` and ``seq``.
    """

    definition: Definition
    rows: Rows


@dataclass(frozen=True, slots=True)
class MergeStep:
    """Replaces. A row stands for a span of time and some keys, and batches add to it.

    ``summarize`` makes rows of the table out of some events; ``merge`` makes one row of those that
    have the same keys, and is given what ``summarize`` made beside what the table has. The column
    ``definition.moment`` is the start of a row's span, and spans are ``grain`` seconds long,
    counted from 1970. The events of a window come to a table once, in one commit with the rows.
    """

    definition: Definition
    grain: int
    summarize: Callable[[DataFrame], DataFrame]
    merge: Callable[[DataFrame], DataFrame]


Step = RowStep | MergeStep
