"""A batch read: ``spark.read.format("localqueue")``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from localqueue.errors import ConfigurationError
from localqueue.spark.masking import without_secrets
from localqueue.spark.options import Options
from localqueue.spark.read.kept import KeptTask, check_kept
from localqueue.spark.read.offsets import ending_seq, starting_seq, takes_what_is_kept
from localqueue.spark.read.scan import Source, open_source, read_task
from localqueue.spark.read.schema import payload_fields

if TYPE_CHECKING:
    import pyarrow as pa


@without_secrets
class BatchReader(DataSourceReader):
    """Messages, dead letters or the journal, as the options say.

    Spark makes it in a process beside the driver when a DataFrame is first used, and keeps the
    partitions as long as the DataFrame: it has what was there then and still is. ``read`` runs in
    tasks, and uses nothing but its partition.

    It has no ``pushFilters`` on purpose: Spark would keep the filters as well, see ``where``.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        payload_fields(options, schema)
        _refuse_what_is_for_streams(options)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with open_source(self._options, self._schema) as source:
            if self._options.content == "journal":
                return self._journal(source)
            return source.plan_messages()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; JournalTrimmed when events may have gone since it was planned."""
        if isinstance(partition, KeptTask):
            return partition.read(self._options, self._schema)
        return read_task(partition)

    def _journal(self, source: Source) -> list[KeptTask]:
        after = starting_seq(self._options, source)
        upto = ending_seq(self._options, source, source.journal_end())
        known = source.trims() if takes_what_is_kept(self._options) else {}
        tasks = source.plan_journal(after, upto)
        # Now that it is planned: what goes after this is seen by the tasks.
        gone = check_kept(self._options, source, after, known)
        return [KeptTask(task, gone) for task in tasks]


def _refuse_what_is_for_streams(options: Options) -> None:
    """What would be left out in silence."""
    if options.lease:
        raise ConfigurationError("lease mode is a stream; use readStream, or leave out lease")
    if options.is_cut and options.content != "journal":
        raise ConfigurationError(
            f"{options.content} are read as they are now; offsets and timestamps to start or end at"
            " are for streams and for content=journal. To choose by time use the option where, such"
            " as created_at >= '2026-01-31T08:00:00Z'"
        )
