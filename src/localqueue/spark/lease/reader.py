"""Competing consumption: a streaming read that leases, and acknowledges what the sink has.

Beside ordinary workers: a message is held by the stream or by a worker, never by both. An offset is
the store's id, the names of stream and queue and the token of the newest lease, ``{"store":
"9f3c…", "lease": "nightly", "queue": "jobs", "0": 1200}``.

What Spark's calls mean here, in the order in which they come for a batch:

    latestOffset(start)     everything up to start is in the sink: acknowledge it, then lease more
    (the offset log)        the batch is start to end from now on, also for a replay
    partitions(start, end)  the messages leased in between, with their rows
    commit(end)             one batch late, and after the last batch of AvailableNow never

A process that dies before the offset log has its leases in the next batch, because ``latestOffset``
answers with the newest lease that the stream holds, also when it takes no new one. A query without
a checkpoint begins at position 0, so whatever the stream still holds is in its first batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from localqueue.errors import ConfigurationError, JournalForeign
from localqueue.spark.lease.leased_rows import LeasedRows, rows_in_parts
from localqueue.spark.lease.leased_stream import LeasedStream
from localqueue.spark.masking import without_secrets
from localqueue.spark.options import Options
from localqueue.spark.read.offsets import LEASE, SHARD
from localqueue.spark.read.scan import open_source
from localqueue.stores.open import open_store

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 10_000
"""Of one batch, unless ``maxRowsPerTrigger`` says otherwise."""


@without_secrets
class LeaseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The messages of one queue, leased under the name that ``consumerGroup`` gives.

    Spark makes one in a process beside the driver, where all methods but ``read`` are called and
    the store is opened with the first of them; and others, which are pickled for ``read``.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._queue, self._name = _queue_and_name(options)
        self._stream: LeasedStream | None = None
        self._store_id = ""
        self._newest = 0
        """The newest position that the store has, or had when it was opened."""
        self._left = float("inf")
        """How many messages the query may still take."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._lead()
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows_per_trigger or MOST_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """As many messages as there are now, so that the query ends however many are put."""
        self._left = self._lead().available()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        stream = self._lead()
        position = self._position(start)
        stream.ack(position)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else float("inf")
        self._left -= stream.lease(min(most - stream.held(), self._left))
        return self._offset(max(position, stream.position()))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """For the query's progress, with ``lag``: how many messages wait. It never leases."""
        lag = self._lead().available()
        return {**self._offset(self._newest), "lag": lag}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        stream = self._lead()
        after, upto = self._position(start), self._position(end)
        messages = stream.messages(after, upto) if upto > after else []
        return rows_in_parts(messages, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LeasedRows):
            yield from partition.read(self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        self._lead().ack(self._position(end))

    def stop(self) -> None:
        """Let the next one lead. Spark mostly ends the process instead, which does the same."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _lead(self) -> LeasedStream:
        if self._stream is None:
            options = self._options
            with open_source(options, self._schema) as source:
                if source.is_copy:
                    # It has another id as soon as it is opened.
                    raise ConfigurationError(
                        f"{options.masked_url} is a backup that nobody has opened yet; open it once"
                        " with a queue, so that it is a store of its own"
                    )
                store = open_store(options.url)
                try:
                    stream = LeasedStream(store, self._queue, self._name, options.lease_timeout)
                    self._store_id, self._newest = source.store_id, source.journal_end()
                except BaseException:
                    store.close()
                    raise
            self._stream = stream
        return self._stream

    def _offset(self, position: int) -> dict[str, Any]:
        self._newest = max(self._newest, position)
        return {
            "store": self._store_id,
            LEASE: self._name,
            "queue": self._queue,
            SHARD: position,
        }

    def _position(self, offset: dict[str, Any]) -> int:
        """Of an offset that a checkpoint has; JournalForeign when it cannot be of this stream.

        Acknowledging up to another one's position would be the end of messages that no sink has.
        (A power cut leaves no position ahead of the store: with each boot tokens leap.)
        """
        store, name, position = offset.get("store"), offset.get(LEASE), offset.get(SHARD)
        if not (isinstance(store, str) and isinstance(name, str) and isinstance(position, int)):
            raise JournalForeign(
                f"the checkpoint has the offset {offset!r}, which lease mode never wrote; it"
                " belongs to another source: use another checkpointLocation"
            )
        if store != self._store_id:
            raise JournalForeign(
                f"the checkpoint belongs to the store {store}, and this one is {self._store_id}:"
                f" another file, or one restored from a backup. {_NEW_CHECKPOINT}"
            )
        if name != self._name:
            # The sink of that stream has other messages than this one holds.
            raise JournalForeign(
                f"the checkpoint belongs to the stream {name!r}, and this one is {self._name!r}."
                f" {_NEW_CHECKPOINT}"
            )
        if offset.get("queue") != self._queue:
            raise JournalForeign(
                f"the checkpoint belongs to the stream {name!r} of queue {offset.get('queue')!r},"
                f" and this one is of {self._queue!r}. {_NEW_CHECKPOINT}"
            )
        if position > self._newest:
            raise JournalForeign(
                f"the checkpoint is at position {position}, and the store ends at {self._newest}:"
                f" an older copy of its file was put in its place. {_NEW_CHECKPOINT}"
            )
        return position


_NEW_CHECKPOINT = (
    "Use a new checkpointLocation: nothing is lost, all that the stream holds is in its first batch"
)


def _queue_and_name(options: Options) -> tuple[str, str]:
    if options.content != "messages":
        raise ConfigurationError(
            f"lease mode takes messages, not {options.content}; leave out lease to read those"
        )
    if options.consumer_group is None:
        raise ConfigurationError(
            "lease mode needs the option consumerGroup: the name under which the stream holds its"
            " messages"
        )
    if len(options.queues) != 1:
        raise ConfigurationError("lease mode takes the messages of one queue; name it as queue")
    if options.is_cut:
        raise ConfigurationError(
            "lease mode takes what is ready, in the queue's order; offsets and timestamps to start"
            " or end at are for reading without lease"
        )
    return options.queues[0], options.consumer_group
