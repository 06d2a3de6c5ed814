"""How a table gets its rows: by looking at each event alone, or by merging with what is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.parquet_files import Rows
from localqueue.spark.pipeline.summaries import Summing


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

    ``begin`` makes what sums up the events of a task; it is pickled, and runs on executors.
    ``merge`` runs in the driver: out of what all tasks have summed up, and of rows of the table, it
    makes one row for each key. The column ``span`` is when a row's span began, in both;
    ``definition.moment`` of a row is not before it. The events of a window come to a table once, in
    one commit with the rows.
    """

    definition: Definition
    span: str
    begin: Callable[[], Summing]
    merge: Callable[[pa.Table, pa.Table], pa.Table]


Step = RowStep | MergeStep
