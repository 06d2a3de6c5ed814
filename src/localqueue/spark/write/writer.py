"""DataFrames into queues: tasks make messages of their rows, the driver puts them, each once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from localqueue.clock import SYSTEM_CLOCK
from localqueue.errors import ConfigurationError, InvalidMessage
from localqueue.spark.masking import without_secrets
from localqueue.spark.options import Options
from localqueue.spark.python_process import settle_in
from localqueue.spark.write.bad_row import BadRow
from localqueue.spark.write.put_columns import put_columns
from localqueue.spark.write.puts import Facts, RowsToPuts
from localqueue.spark.write.sink import Part, Sink
from localqueue.spark.write.sink_ledger import SinkBatch
from localqueue.spark.write.staged_rows import RowsOut, StagedFile
from localqueue.spark.write.staging import folder_at, is_this_host, staging_location
from localqueue.spark.write.streaming_query import RunningQuery, checkpoint_id, running_query


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    prefix: str
    """How the names of the files of this write begin."""
    rows: bytes | StagedFile | None = field(repr=False)
    facts: dict[str, Facts]
    query: RunningQuery


class RowWriter:
    """The task's part. It is pickled to the tasks, and holds nothing but what was asked for."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "a queue is not overwritten; append to it, with mode('append') or"
                " outputMode('append'). PersistentQueue.purge() empties one"
            )
        self.options = options
        self.columns = put_columns(schema, options)
        self.location = staging_location(options)
        self.boot_id = SYSTEM_CLOCK.boot_id()
        self.prefix = os.urandom(8).hex()

    def write_rows(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """In a task: check the rows and leave them for the driver."""
        settle_in()
        rows = RowsToPuts(self.columns)
        beside = self.options.staging_directory is None
        reachable = not beside or is_this_host(self.boot_id)
        folder = folder_at(self.location, ours=beside) if reachable else None
        with RowsOut(rows.schema, folder, self.prefix, partition=_partition()) as out:
            try:
                for batch in batches:
                    if len(batch):
                        out.add(rows.convert(batch))
            except BadRow as bad:
                raise InvalidMessage(
                    f"row {bad.place} of partition {_partition()} cannot be put: {bad.why};"
                    " nothing of this batch was put"
                ) from None
            return Written(self.prefix, out.finish(), rows.facts, running_query())

    def put(self, messages: Sequence[WriterCommitMessage | None], batch: SinkBatch | None) -> None:
        """On the driver."""
        settle_in()
        written = _written(messages)
        parts = [Part(one.rows, one.facts) for one in written if one.rows is not None]
        with Sink(self.options, self.columns.queue, self.prefix) as sink:
            sink.put(parts, batch, {one.prefix for one in written})

    def abandon(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: a task failed, or ``put`` did."""
        with Sink(self.options, self.columns.queue, self.prefix) as sink:
            sink.abandon({one.prefix for one in _written(messages)})


@without_secrets
class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("localqueue").mode("append")``."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if options.batch_id is not None and options.sink_id is None:
            raise ConfigurationError("batchId numbers the batches of a sink; give sinkId as well")
        self._rows = RowWriter(options, schema, overwrite)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._rows.write_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._rows.put(messages, self._batch(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._rows.abandon(messages)

    def _batch(self, messages: Sequence[WriterCommitMessage | None]) -> SinkBatch | None:
        sink_id, number = self.options.sink_id, self.options.batch_id
        if sink_id is None:
            return None
        query, run = _query_of(messages)
        if query is None:
            return SinkBatch(f"job:{sink_id}", number or "")
        if number is None or not number.isdecimal():
            raise ConfigurationError(
                "in foreachBatch a write with sinkId needs batchId too: the number that the"
                " function is given. Nothing was put"
            )
        return SinkBatch(f"query:{sink_id}", number, query, run, in_sequence=True)


@without_secrets
class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("localqueue")``."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if options.batch_id is not None:
            raise ConfigurationError("a streaming query numbers its batches itself; omit batchId")
        self._rows = RowWriter(options, schema, overwrite)
        self.options = options
        self._checkpoint = checkpoint_id(options.checkpoint_location)
        if options.sink_id is None and self._checkpoint is None:
            raise ConfigurationError(
                "a streaming write has to know itself again after a restart, and it is told no"
                " checkpointLocation that can be read from here; give the option sinkId, a name of"
                " your choice that no other query uses"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._rows.write_rows(iterator)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        self._rows.put(messages, self._batch(messages, batchId))

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        self._rows.abandon(messages)

    def _batch(self, messages: Sequence[WriterCommitMessage | None], number: int) -> SinkBatch:
        query, run = _query_of(messages)
        sink_id = self.options.sink_id
        if sink_id is None and query is not None and query != self._checkpoint:
            raise ConfigurationError(
                f"the checkpoint at {self.options.checkpoint_location} belongs to another query"
                " than this one; give the option sinkId. Nothing was put"
            )
        sink = f"query:{sink_id}" if sink_id is not None else f"checkpoint:{self._checkpoint}"
        return SinkBatch(sink, str(number), query, run, in_sequence=True)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> RunningQuery:
    return next((one.query for one in _written(messages)), RunningQuery())


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
