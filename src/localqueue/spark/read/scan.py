"""A store as Spark reads it: planned beside the driver, read by tasks.

``open_source`` gives the driver-side view of the store that a URL names. It looks and never
changes anything. Its ``plan_`` methods give tasks that can be pickled; ``read_task`` runs one, in
any Python process of the same host, and yields Arrow batches of exactly the schema that the source
was opened with. A kind of store is one class of sources and one of tasks: SQLite has its in
``sqlite_source`` and ``sqlite_task``.

    with open_source(options, schema) as source:
        tasks = source.plan_journal(after, source.journal_end())
    ...
    for batch in read_task(task): ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from localqueue.errors import ConfigurationError
from localqueue.spark.options import Options
from localqueue.spark.python_process import settle_in

if TYPE_CHECKING:
    import pyarrow as pa


class Piece(NamedTuple):
    """A range of rows, all of one state of the store."""

    after: int
    """Of events: the seq before the first that it may have."""
    batches: Iterator[pa.RecordBatch]


class Era(NamedTuple):
    """A name that a store has, or had until it was restored from a backup."""

    store: str
    """The digits that positions begin with."""
    first: int
    """The first seq that has them; up to that of the next era."""


class ReadTask(InputPartition, ABC):
    """A part of a read. Its text shows no URL: Spark may write it into a log."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows of this part. Nothing is open any more when a batch is handed out."""
        for piece in self.pieces():
            yield from piece.batches

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """The same piece by piece. What is handed out was read, and nothing is open any more."""


class Source(Protocol):
    """One store, its chosen queues and content. A closed source answers nothing.

    Plans are of the rows that meet the option ``where`` and all filters; ConfigurationError for a
    filter that the store cannot answer exactly.
    """

    @property
    def store_id(self) -> str:
        """Another one for every store, and for one that was restored from a backup."""

    def eras(self) -> list[Era]:
        """Under which names its journal has events; the oldest first, and today's last."""

    @property
    def is_copy(self) -> bool:
        """Whether it is a backup that nobody has opened: a store of its own, once a queue does."""

    # --- the journal, by seq: the chosen events are those that this content consists of -----------
    def journal_oldest(self) -> int:
        """The seq before the oldest event that the store has; 0 when nothing ever happened."""

    def journal_end(self) -> int:
        """The newest seq of the store; 0 when nothing ever happened."""

    def make_lasting(self) -> None:
        """What was seen so far is on stable storage: a power cut does not undo it."""

    def journal_at(self, moment: float) -> int:
        """The newest seq before this store time, in seconds: what came at it or later follows."""

    def journal_step(self, after: int, rows: int, upto: int) -> int:
        """How far to go so that (after, seq] has at most so many chosen events; ``upto`` at most.

        With 0 rows it stands before the first of them.
        """

    def journal_count(self, after: int, upto: int) -> int:
        """How many chosen events (after, upto] has."""

    def position(self, seq: int) -> str:
        """The journal position of a seq, as the store's verbs take it."""

    def seq_of(self, position: str) -> int:
        """The seq of a journal position; JournalForeign when it is not of this store."""

    # --- what the chosen queues keep --------------------------------------------------------------
    def trims(self) -> dict[str, int]:
        """Up to which seq some events are gone, by queue; of those that have a journal."""

    def without_journal(self) -> list[str]:
        """The chosen queues that keep no journal."""

    def in_topic_logs(self) -> list[str]:
        """The chosen topics and subscribers whose messages are made when somebody leases them."""

    def without_payloads(self) -> list[str]:
        """The chosen queues whose journal keeps no payloads."""

    # --- plans ------------------------------------------------------------------------------------
    def plan_messages(self, filters: Sequence[Filter] = ()) -> list[ReadTask]:
        """The messages, or the dead letters, that are there now.

        Each of them once, as it is at the moment when its part is read, unless it is gone by then;
        what is put later is left out. The parts are not one snapshot. Values are not compared
        with their checksums, as a delivery does.
        """

    def plan_journal(
        self, after: int, upto: int, filters: Sequence[Filter] = (), partitions: int | None = None
    ) -> list[ReadTask]:
        """The events in (after, upto] of the chosen queues; ordered by seq inside a task.

        ``partitions`` is how many tasks at most, about one per core when it is not given.
        """

    def plan_enqueued(self, after: int, upto: int, partitions: int | None = None) -> list[ReadTask]:
        """The messages that came in (after, upto], or with dead letters: that died then.

        A row for each event. What the journal does not have is as it is at the moment of reading,
        and null when the message is gone; the value too, unless the queue's journal keeps payloads.
        """

    # --- its end ----------------------------------------------------------------------------------
    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def open_source(options: Options, schema: StructType) -> Source:
    """The store that the options name, for reading; ``schema`` is what Spark gave the reader.

    StoreMissing, StoreUnsupported or StoreCorrupt when it cannot be read, ConfigurationError for a
    queue that does not exist; nothing is made or changed.
    """
    scheme = options.url.partition("://")[0].lower()
    if scheme == "sqlite":
        from localqueue.spark.read.sqlite.source import SQLiteSource

        return SQLiteSource(options, schema)
    raise ConfigurationError(f"{options.masked_url} cannot be read by Spark; use sqlite:////file")


def read_task(task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task that a source has planned."""
    if not isinstance(task, ReadTask):
        # What Spark makes of an empty plan.
        return
    yield from task.read()
    settle_in()
