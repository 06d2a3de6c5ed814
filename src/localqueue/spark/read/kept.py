"""Whether the journal still has what a read was planned with: it may be trimmed meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from localqueue.errors import JournalTrimmed
from localqueue.spark.options import Options
from localqueue.spark.read.scan import ReadTask, Source, open_source

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("localqueue.spark")


@dataclass(frozen=True)
class KeptTask(InputPartition):
    """A task that reads events, and what was gone of the journal when it was planned."""

    task: ReadTask
    gone: Mapping[str, int]

    def read(self, options: Options, schema: StructType) -> Iterator[pa.RecordBatch]:
        """The rows; JournalTrimmed when some have gone before they were read."""
        for piece in self.task.pieces():
            # Now that it is read: what goes after this is no loss.
            with open_source(options, schema) as source:
                check_kept(options, source, piece.after, self.gone)
            yield from piece.batches


def check_kept(
    options: Options, source: Source, after: int, known: Mapping[str, int]
) -> dict[str, int]:
    """That nothing after this seq is gone but what is known to be; what is gone now, by queue.

    JournalTrimmed when there is more, or with failOnDataLoss=false a warning.
    """
    trims = source.trims()
    gone = [
        f"{queue!r} up to {upto}"
        for queue, upto in sorted(trims.items())
        if upto > max(after, known.get(queue, 0))
    ]
    if not gone:
        return trims
    text = (
        f"events after position {after} are gone before they were read: the journal was trimmed,"
        f" of {', '.join(gone)}."
    )
    if options.fail_on_data_loss:
        raise JournalTrimmed(
            f"{text} With failOnDataLoss=false the rest is read without them; the journal is kept"
            " for the consumerGroup of a stream, and for any registered reader"
        )
    log.warning("%s The rest is read without them (failOnDataLoss=false)", text)
    return trims
