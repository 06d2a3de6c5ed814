"""A batch read: ``spark.read.format("localqueue")``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from localqueue.errors import JournalTrimmed
from localqueue.spark.masking import without_secrets
from localqueue.spark.offsets import ending_seq, starting_seq, takes_what_is_kept
from localqueue.spark.options import Options
from localqueue.spark.scan import ReadTask, Source, open_source, read_task
from localqueue.spark.schema import payload_fields

if TYPE_CHECKING:
    import pyarrow as pa


@without_secrets
class BatchReader(DataSourceReader):
    """Messages, dead letters or the journal, as the options say.

    Spark makes it, pushes filters and asks for the partitions in one process beside the driver, and
    pickles it for the tasks. ``read`` runs in them, and uses nothing but its partition.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters: list[Filter] = []
        payload_fields(options, schema)
        # An attribute of the object: see _Pushing.
        self.pushFilters = _Pushing(self)  # type: ignore[method-assign]

    def push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Keep what the store answers exactly, and give back the rest."""
        with open_source(self._options, self._schema) as source:
            left = source.unanswered(filters)
        self._filters += [one for one in filters if not any(one is other for other in left)]
        return left

    def partitions(self) -> Sequence[InputPartition]:
        with open_source(self._options, self._schema) as source:
            if self._options.content == "journal":
                return self._journal(source)
            return source.plan_messages(self._filters)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)

    def _journal(self, source: Source) -> list[ReadTask]:
        after, upto = (
            starting_seq(self._options, source),
            ending_seq(self._options, source, source.journal_end()),
        )
        gone = {name: seq for name, seq in source.trims().items() if seq > after}
        if gone and self._options.fail_on_data_loss and not takes_what_is_kept(self._options):
            raise JournalTrimmed(
                f"events after position {after} are gone: the journal was trimmed, of"
                f" {', '.join(f'{name!r} up to {seq}' for name, seq in sorted(gone.items()))}."
                " With failOnDataLoss=false the rest is read"
            )
        return source.plan_journal(after, upto, self._filters)


class _Pushing:
    """``pushFilters`` of a reader that gives the right rows with and without it.

    Spark refuses a reader that overrides the method while spark.sql.python.filterPushdown.enabled
    is off, which it is unless ``register`` has turned it on. It looks at ``__func__`` to tell.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)
