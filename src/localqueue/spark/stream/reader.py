"""Streams of the journal, of the messages that come in, and of those that become dead letters."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from localqueue.errors import ConfigurationError, JournalForeign
from localqueue.spark.masking import without_secrets
from localqueue.spark.options import Options
from localqueue.spark.read.kept import KeptTask, check_kept
from localqueue.spark.read.offsets import (
    Offset,
    ending_seq,
    read_offset,
    starting_seq,
    takes_what_is_kept,
)
from localqueue.spark.read.scan import Source, open_source, read_task
from localqueue.spark.stream.consumer_group import ConsumerGroup
from localqueue.spark.stream.lag_counter import LagCounter

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("localqueue.spark")

LONGEST_STAND = 60.0
"""Seconds after which a stream moves past events that are not its own, with an empty batch."""


@without_secrets
class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of one store. All methods but ``read`` run in one process beside the driver.

    That process holds a read-only connection, idle between the calls, and with ``consumerGroup`` a
    writing one; both may end with it, ``stop`` is not needed. ``read`` runs in tasks, and uses
    nothing but its partition.

    Messages and dead letters are found by the events of their arrival. So those that came before
    the oldest event that is kept are in no batch, also when they still wait; a warning says so at
    the start. A batch read has them.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._source: Source | None = None
        self._group: ConsumerGroup | None = None
        if options.consumer_group is not None:
            self._group = ConsumerGroup(options, options.consumer_group)
        self._initial: Offset | None = None
        self._target: int | None = None
        """With Trigger.AvailableNow: how far the journal went when the query started."""
        self._quiet = (0, 0)
        """After the first position and up to the second there is nothing for the stream."""
        self._moved_at = time.monotonic()
        self._newest: int | None = None
        """How far the journal went when Spark last asked."""
        self._end = 0
        """Where the newest batch ends."""
        self._lag = LagCounter()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the query begins; the same one in every call of a run, which Spark relies on."""
        if self._initial is None:
            source = self._opened()
            if source.is_copy:
                # Its positions are those of the store it was made from, until it has its own.
                raise ConfigurationError(
                    f"{self._options.masked_url} is a backup that nobody has opened yet; open it"
                    " once with a queue, so that it is a store of its own"
                )
            seq = starting_seq(self._options, source)
            if self._group is not None:
                seq = self._group.begin(source, seq)
            trims = source.trims() if takes_what_is_kept(self._options) else {}
            self._tell_of_those_before(source, seq, trims)
            self._initial = Offset(source.store_id, 0, trimmed=trims).moved(seq)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._opened().journal_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; ``start`` itself when there is none.

        Everything up to ``start`` is in the sink, so the consumer group moves there.
        """
        source = self._opened()
        begin = read_offset(start, source)
        self._newest = newest = source.journal_end()
        _check_there(begin, newest)
        if self._group is not None:
            self._group.has(source, begin.seq)
        self._end = self._next_end(source, begin, newest, limit)
        if self._end == begin.seq:
            return start
        # Spark writes it down: it must not be undone by a power cut, and then be given away again.
        source.make_lasting()
        self._moved_at = time.monotonic()
        end = begin.moved(self._end)
        if self._initial is not None and start == self._initial.to_json():
            end = Offset(end.store, end.seq, began=begin.seq, trimmed=begin.trimmed)
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """How far the journal goes, and ``lag``: the rows that are left after the newest batch."""
        source = self._opened()
        # As latestOffset has just found it: Spark asks for both a hundred times a second.
        newest = source.journal_end() if self._newest is None else self._newest
        newest = max(self._end, ending_seq(self._options, source, newest))
        lag = self._lag.count(source, self._end, newest)
        return {**Offset(source.store_id, newest).to_json(), "lag": lag}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, also of one that is replayed: the same rows again.

        JournalTrimmed when some of them are gone, unless failOnDataLoss is false.
        """
        source = self._opened()
        begin, until = read_offset(start, source), read_offset(end, source)
        if until.began is not None:
            begin = Offset(begin.store, until.began, trimmed=until.trimmed)
        if begin.seq >= until.seq:
            return []
        _check_there(until, source.journal_end())
        after = self._quiet_after(begin.seq)
        plan = source.plan_journal if self._options.content == "journal" else source.plan_enqueued
        tasks = plan(after, until.seq, partitions=self._options.min_partitions)
        # Now that it is planned: what goes after this is seen by the tasks.
        gone = check_kept(self._options, source, after, begin.trimmed)
        if self._group is not None:
            return tasks  # the journal is kept for it
        return [KeptTask(task, gone) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; JournalTrimmed when some may have gone meanwhile."""
        if isinstance(partition, KeptTask):
            return partition.read(self._options, self._schema)
        return read_task(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """The sink has everything up to ``end``. Comes a batch late; after the last one, never."""
        if self._group is not None:
            source = self._opened()
            self._group.has(source, read_offset(end, source).seq)

    def stop(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
        if self._group is not None:
            self._group.close()

    # --- how it is done -----------------------------------------------------------------------
    def _opened(self) -> Source:
        if self._source is None:
            source = open_source(self._options, self._schema)
            try:
                self._check_queues(source)
                # A backup is not to be opened by a query: it would be a store of its own then.
                if self._group is not None and not source.is_copy:
                    self._group.lead()
            except BaseException:
                source.close()
                raise
            self._source = source
        return self._source

    def _next_end(self, source: Source, begin: Offset, newest: int, limit: ReadLimit) -> int:
        upto = ending_seq(self._options, source, newest)
        if self._target is not None:
            upto = min(upto, self._target)
        if upto <= begin.seq:
            return begin.seq
        seen = self._quiet_after(begin.seq)
        if source.journal_step(seen, 0, upto) < upto:
            if isinstance(limit, ReadMaxRows):
                return source.journal_step(begin.seq, limit.max_rows, upto)
            return upto
        self._quiet = (begin.seq if seen == begin.seq else self._quiet[0], upto)
        # An offset that stays behind would be called trimmed one day, though nothing was missed.
        is_time = time.monotonic() - self._moved_at > LONGEST_STAND
        return upto if self._target is not None or is_time else begin.seq

    def _quiet_after(self, seq: int) -> int:
        """How far it is known that nothing for the stream follows."""
        first, last = self._quiet
        # Before the first: a batch that is over, whose rows somebody wants again.
        return last if first <= seq <= last else seq

    def _tell_of_those_before(self, source: Source, seq: int, trims: Mapping[str, int]) -> None:
        """No error: every journal is trimmed one day, and a stream must be able to begin then."""
        is_oldest = seq <= source.journal_oldest()
        gone = [queue for queue, upto in sorted(trims.items()) if is_oldest or upto > seq]
        if gone and self._options.content != "journal":
            log.warning(
                "the journal of %s was trimmed: messages that came before the oldest event that is"
                " kept are not in this stream, also if they still wait. A batch read has them",
                _names(gone),
            )

    def _gives_values(self) -> bool:
        """Whether messages are read, whose values the journal need not have."""
        options = self._options
        with_value = options.payload_schema is not None or "value" in self._schema.names
        return options.content != "journal" and with_value

    def _check_queues(self, source: Source) -> None:
        """What the stream cannot give for some queues is said once, before its first batch."""
        if self._group is None and (without := source.without_journal()):
            raise ConfigurationError(
                f"{_names(without)} keeps no journal, so a stream would miss events; use"
                " journal_policy=Journal(), or let a consumerGroup keep it"
            )
        if self._options.content == "messages" and (unseen := source.in_topic_logs()):
            text = (
                f"the messages of {_names(unseen)} stand in a topic's log until a worker leases"
                " them, and a stream of messages does not see them before. Use content=journal,"
                " which has each publication of the topic, or lease=true to consume a subscriber's"
            )
            if self._options.queues:
                raise ConfigurationError(text)
            log.warning("%s. Of all other queues it has every message", text)
        if self._gives_values() and (without := source.without_payloads()):
            log.warning(
                "the journal of %s keeps no payloads: the value of a message that is gone before"
                " its batch is read, or read again, is null. Use"
                " journal_policy=Journal(payloads=True) to have it",
                _names(without),
            )


def _check_there(offset: Offset, newest: int) -> None:
    if offset.seq > newest:
        raise JournalForeign(
            f"the checkpoint has read up to position {offset.seq}, and the journal ends at"
            f" {newest}: an older copy of the store's file was put in its place. Use a new"
            " checkpointLocation, and startingOffsets or startingTimestamp to say where to begin"
        )


def _names(queues: Sequence[str]) -> str:
    return ", ".join(f"queue {name!r}" for name in queues)
