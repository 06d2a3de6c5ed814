"""The pipeline: the journal of a store, as tables of a lake, kept up to date.

One streaming query reads the journal. Each of its batches goes through ``tables``: one pass writes
``quarantine``, ``events`` and silver and sums up what gold needs, which the driver then merges.
Every table keeps its own position, so whatever ends in the middle, the next run puts right.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.errors import ConfigurationError, LocalQueueError, UnsupportedByStore
from localqueue.failpoints import reach
from localqueue.spark.leadership import Leadership
from localqueue.spark.options import Options
from localqueue.spark.pipeline.awaiting import ends_within
from localqueue.spark.pipeline.checkpoint import next_start, set_aside
from localqueue.spark.pipeline.checks import check_limits, check_name
from localqueue.spark.pipeline.compacted.merging import KeyStep, check_topics
from localqueue.spark.pipeline.compacted.topic import Compacted, checked
from localqueue.spark.pipeline.events import EVENTS, STORE_DIGITS
from localqueue.spark.pipeline.failures import raise_failure_of
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.places import Feed, Place, reached
from localqueue.spark.pipeline.quarantine import QUARANTINE
from localqueue.spark.pipeline.steps import MergeStep
from localqueue.spark.pipeline.tables import GOLD, SILVER, gold
from localqueue.spark.pipeline.turns import Ended, Turns
from localqueue.spark.pipeline.views import Views
from localqueue.spark.pipeline.views.files import check_file
from localqueue.spark.pipeline.writing import LakeWriter
from localqueue.spark.read.kept import check_kept
from localqueue.spark.read.offsets import SHARD
from localqueue.spark.read.scan import Source, open_source
from localqueue.spark.read.schema import spark_schema
from localqueue.spark.sessions.registration import is_connect
from localqueue.stores.open import absolute_url, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("localqueue.spark")

ROWS_PER_BATCH = 500_000
PATIENCE = 8.0
"""Seconds in which a query of the same name that was just stopped has ended."""
LOOK_AFTER_EVERY = 600
"""Seconds after which a run that goes on lets go again of what is older than is wanted."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch that every table has."""

    batch: int
    events: int
    """How many rows of the journal it read."""
    added: Mapping[str, int]
    """How many rows more each table has: of a topic it may be fewer, when keys were deleted."""
    seconds: float


@dataclass(slots=True)
class Run:
    """What one call of ``run`` did."""

    batches: int = 0
    events: int = 0
    added: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def count(self, done: Progress) -> None:
        self.batches += 1
        self.events += done.events
        self.add(done.added)

    def add(self, added: Mapping[str, int]) -> None:
        for table, rows in added.items():
            self.added[table] = self.added.get(table, 0) + rows


class Pipeline:
    """Brings what happens in a store to a lake, each event once.

    ``store_url`` is the store, ``lake`` a folder, an object store's URL or a ``Lake``. ``queues``
    are the queues whose events come to it, all by default. ``name`` is for the checkpoint and for
    the consumer group ``pipeline:<name>``, which keeps the journal until the lake has it.

    A pipeline can run anywhere that sees the store, as often as wanted, also at the same time as
    one of another name: who comes second adds nothing twice. A second one of the same name is
    refused while the first one runs (ConfigurationError). Deleting the checkpoint is harmless.
    ``retention`` says by table how long its rows are kept; without it for ever. ``slo`` says by
    queue how many seconds a message may wait, and ``minutes`` counts what kept to it.
    ``compacted`` are topics of which the lake has a table with the latest value of each key.
    ``views`` is a file that defines tables of your own, see ``views``.
    """

    def __init__(
        self,
        store_url: str,
        lake: Lake | str | Path,
        *,
        name: str = "default",
        queues: Sequence[str] | None = None,
        spark: SparkSession | None = None,
        checkpoint: str | Path | None = None,
        rows_per_batch: int = ROWS_PER_BATCH,
        fail_on_data_loss: bool = True,
        retention: Mapping[str, timedelta] | None = None,
        slo: Mapping[str, float] | None = None,
        compacted: Sequence[Compacted] = (),
        views: str | Path | None = None,
    ) -> None:
        self.name = check_name("a pipeline", name)
        self.lake = lake if isinstance(lake, Lake) else Lake(lake)
        self.feed = Feed(tuple(queues or ()))
        self._group = f"pipeline:{name}"
        self._given = {
            "url": absolute_url(store_url),
            "content": "journal",
            "consumerGroup": self._group,
            "failOnDataLoss": str(fail_on_data_loss).lower(),
            "maxRowsPerTrigger": str(rows_per_batch),
        }
        if queues:
            self._given["queue"] = ",".join(queues)
        self.options = Options.parse(self._given)
        self._retention = _checked(retention or {})
        self._slo = check_limits("slo", slo or {})
        self._keyed = [KeyStep(topic) for topic in checked(compacted, queues)]
        self._views_file = None if views is None else Path(views)
        if self._views_file is not None:
            check_file(self._views_file)
        self._views: Views | None = None
        self._views_failure: LocalQueueError | None = None
        self._spark = spark
        self._checkpoint = checkpoint
        self._query: StreamingQuery | None = None
        self._turns = Turns()
        self._failure: BaseException | None = None

    def run(
        self,
        *,
        once: bool = True,
        every: float = 5.0,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Run:
        """Bring the lake up to date; with ``once=False`` every so many seconds, until ``stop``.

        ``on_progress`` is told of every batch, on a thread of its own. What fails leaves as an
        error of ``localqueue.errors``; the lake is whole then, and the next run goes on.
        """
        run, began = Run(), time.monotonic()
        self._failure = self._views_failure = None

        def done(progress: Progress) -> None:
            run.count(progress)
            if on_progress is not None:
                on_progress(progress)

        with ExitStack() as at_the_end:
            checkpoint = self._checkpoint_folder(at_the_end)
            with self._source() as source:
                check_topics(source, self.lake, self._keyed)
                trimmed = source.trims()
                names = [(era.store, queue) for era in source.eras() for queue in trimmed]
                merged = gold(self._slo, names)
                steps: list[MergeStep | KeyStep] = [*merged, *self._keyed]
                spark = self._session()
                with self._leading(source):
                    writer = LakeWriter(spark, self.lake, self.feed, SILVER, steps)
                    start = self._start(writer, source, checkpoint)
            if self._views_file is not None:
                # What cannot be meant is said before anything is written.
                self._views = Views(self.lake, self._views_file, spark)
            writer.catch_up()
            stopped = self._stream(writer, start, checkpoint, None if once else every, done)
            if not stopped:
                writer.look_after(self._retention)
                run.add(self._refresh_views())
            elif self._views_failure is not None:
                raise self._views_failure
        run.seconds = time.monotonic() - began
        return run

    def stop(self) -> None:
        """End a run of another thread after the batch that it is at, and wait for that.

        Without a run, the next one ends at once.
        """
        self._turns.end()
        query = self._query
        if query is not None:
            query.stop()

    def _refresh_views(self) -> dict[str, int]:
        """How many rows those got that were not up to date."""
        refreshed = [] if self._views is None else self._views.refresh()
        return {view.name: view.rows for view in refreshed if view.rows is not None}

    def _try_to_refresh_views(self) -> dict[str, int]:
        """The same in a run that goes on: a view that fails does not keep events from the lake."""
        before, self._views_failure = self._views_failure, None
        try:
            return self._refresh_views()
        except LocalQueueError as error:
            self._views_failure = error
            if str(before) != str(error):
                log.error("the views are not up to date, and the tables are: %s", error)
            return {}

    # --- where to begin ---------------------------------------------------------------------------
    def _start(self, writer: LakeWriter, source: Source, checkpoint: Path) -> dict[str, str]:
        """The option that says where a query without a checkpoint begins: where the lake ends."""
        place = Place(source.store_id[:STORE_DIGITS], SHARD)
        position = reached(source.eras(), lambda name: writer.expect(Place(name, SHARD)))
        follows = next_start(checkpoint)
        if follows is None:
            self._keep_from(source, position)
        elif follows.get("store") == source.store_id:
            upto = int(follows[SHARD])
            if upto > position > 0:
                # The query would go on after what is gone.
                check_kept(self.options, source, position, {})
            if upto > position and source.journal_count(position, upto):
                log.warning(
                    "the checkpoint is ahead of the lake, which has events up to %d and not up to"
                    " %d; it is now %s, and the query begins where the lake ends",
                    position,
                    upto,
                    set_aside(checkpoint),
                )
                self._keep_from(source, position)
        if position == 0:
            # Whatever the journal still has, also when the group has been further once.
            return {"startingTimestamp": "0"}
        if not self.options.fail_on_data_loss:
            writer.note_gaps(place, position, source.trims())
        return {"startingOffsets": json.dumps({"store": source.store_id, SHARD: position})}

    @contextmanager
    def _leading(self, source: Source) -> Iterator[None]:
        """Nobody of the same name runs or begins meanwhile: the checkpoint would be theirs, too.

        ConfigurationError when somebody does. The query itself leads when it has begun.
        """
        if source.is_copy:
            # The query says that a backup has to be opened first.
            yield
            return
        with ExitStack() as undo:
            store = open_store(self.options.url)
            undo.callback(store.close)
            store.open_clock(SYSTEM_CLOCK)
            # Where it cannot be told who leads, all may.
            with suppress(UnsupportedByStore):
                undo.callback(Leadership(store, self._group, patience=PATIENCE).close)
            yield

    def _keep_from(self, source: Source, position: int) -> None:
        """The lake says where to begin: the consumer group goes there, be it back."""
        store = open_store(self.options.url)
        try:
            now = StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK)).now
            wanted = source.position(position or source.journal_oldest())
            store.register_reader(self._group, position=wanted, missing_ok=True, now=now)
        finally:
            store.close()

    def _source(self) -> Source:
        schema = spark_schema(self.options)
        assert not isinstance(schema, str)
        return open_source(self.options, schema)

    def _checkpoint_folder(self, at_the_end: ExitStack) -> Path:
        if self._checkpoint is not None:
            return Path(self._checkpoint)
        if self.lake.location.is_local:
            return Path(self.lake.location.uri, "_checkpoints", self.name)
        # The lake itself says where to begin, so nothing is lost with this one.
        folder = tempfile.TemporaryDirectory(prefix="localqueue-checkpoint-")
        return Path(at_the_end.enter_context(folder))

    # --- the query --------------------------------------------------------------------------------
    def _stream(
        self,
        writer: LakeWriter,
        start: Mapping[str, str],
        checkpoint: Path,
        every: float | None,
        done: Callable[[Progress], object],
    ) -> bool:
        """Whether it was stopped."""

        def batch(frame: DataFrame, number: int) -> None:
            try:
                with self._turns.batch():
                    began = time.monotonic()
                    reach("pipeline.batch")
                    rows, added = writer.write(frame)
                    if every is not None and rows:
                        added |= self._try_to_refresh_views()
                    reach("pipeline.after-batch")
                    done(Progress(number, rows, added, time.monotonic() - began))
            except BaseException as error:
                # Spark keeps only its text.
                self._failure = error
                raise

        stream = self._session().readStream.format("localqueue").options(**self._given, **start)
        written = stream.load().writeStream.foreachBatch(batch)
        trigger: dict[str, Any] = {"availableNow": True}
        if every is not None:
            trigger = {"processingTime": f"{every} seconds"}
        query = written.option("checkpointLocation", str(checkpoint)).trigger(**trigger)
        return self._await(query.start(), writer)

    def _await(self, query: StreamingQuery, writer: LakeWriter) -> bool:
        """Whether it was stopped."""
        self._query, turns = query, self._turns
        try:
            if self._turns.is_over:
                query.stop()
            while not ends_within(query, LOOK_AFTER_EVERY):
                with self._turns.between_batches():
                    writer.look_after(self._retention)
        except KeyboardInterrupt:
            query.stop()
            # Its jobs are cancelled, and what is left of the batch ends soon.
            self._turns.end()
            raise
        except Exception as error:
            query.stop()
            if not isinstance(self._failure, Ended):
                raise_failure_of(self._failure or error)
        finally:
            self._query = None
            self._turns = Turns()
        return turns.is_over

    def _session(self) -> SparkSession:
        if self._spark is None:
            from localqueue.spark.sessions.spark_session import session

            self._spark = session()
        if is_connect(self._spark):
            raise ConfigurationError(
                "a pipeline commits in the process that has the Spark session, which Spark Connect"
                " keeps elsewhere; use a master such as local[*] or spark://host:7077"
            )
        return self._spark


def _checked(retention: Mapping[str, timedelta]) -> Mapping[str, timedelta]:
    known = [QUARANTINE.name, EVENTS.name]
    known += [step.definition.name for step in SILVER] + [step.definition.name for step in GOLD]
    for name in retention:
        if name not in known:
            raise ConfigurationError(
                f"retention: no table that has one is called {name!r}; {', '.join(known)} have"
            )
    return dict(retention)
