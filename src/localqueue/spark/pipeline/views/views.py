"""``Views``: the tables of a file of definitions, brought up to date."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException, PySparkException

from localqueue.errors import ConfigurationError, LocalQueueError
from localqueue.spark.pipeline import rollups
from localqueue.spark.pipeline.failures import failure_of
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.read_table import read_table
from localqueue.spark.pipeline.views.columns import definition_of
from localqueue.spark.pipeline.views.definitions import Definitions, Kind, Query, View
from localqueue.spark.pipeline.views.endless import check_endless
from localqueue.spark.pipeline.views.files import line_of, read_definitions
from localqueue.spark.pipeline.views.keeping import (
    TRIES,
    add_rows,
    busy,
    grown,
    has_rows_of,
    is_made_of,
    replace_rows,
    table_of,
)
from localqueue.spark.pipeline.views.problems import first_line
from localqueue.spark.pipeline.views.reading import LakeSession
from localqueue.spark.pipeline.views.sources import check_streamed, new_rows
from localqueue.spark.sessions.registration import is_connect, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("localqueue.spark")


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What became of one view."""

    name: str
    kind: Kind
    rows: int | None
    """How many rows it got: all of a materialized view. None when it was up to date."""


@dataclass(slots=True)
class _Reads:
    """What a query turned out to read."""

    view: View
    flow: str
    versions: dict[str, int] = field(default_factory=dict)
    """Of tables of the lake; the oldest, where a table was read twice."""
    elsewhere: bool = False
    streams: set[str] = field(default_factory=set)
    """The names under which it reads what is new."""
    floors: dict[str, int] = field(default_factory=dict)
    moves: dict[str, int] = field(default_factory=dict)

    def add(self, versions: dict[str, int]) -> None:
        for table, version in versions.items():
            self.versions[table] = min(version, self.versions.get(table, version))


class Views:
    """The views that a file defines, as tables of a lake.

    Reading the file runs it when it is Python. ConfigurationError for a file that cannot be meant:
    bad SQL, a name that is taken, views that read each other in a circle. Several may refresh the
    same views at the same time; none of them adds anything twice.
    """

    def __init__(self, lake: Lake | str | Path, file: str | Path, spark: SparkSession) -> None:
        if is_connect(spark):
            raise ConfigurationError(
                "views are committed by the process that has the Spark session, which Spark"
                " Connect keeps elsewhere; use a master such as local[*] or spark://host:7077"
            )
        self.lake = lake if isinstance(lake, Lake) else Lake(lake)
        self.file = Path(file)
        # Names of tables are views of the session, and the user's own stay as they are.
        self._spark = spark.newSession()
        register(self._spark)
        self._session = LakeSession(self._spark, self)
        self._reads: list[_Reads] = []
        self._ready: dict[str, dict[str, int]] = {}
        """Names that are views of the session in this turn, with the versions they stand for."""
        self._elsewhere: set[str] = set()
        """Those of them that read something that is no table of the lake."""
        self._done: dict[str, Refreshed] = {}
        self._failed: dict[str, LocalQueueError] = {}
        self.definitions: Definitions = read_definitions(self.file, self._session, self._spark)
        self._digest = hashlib.sha256(self.file.read_bytes()).hexdigest()

    def refresh(self) -> list[Refreshed]:
        """Bring all views up to date, each in commits of its own.

        One that fails keeps no other from it but those that read it. When all are done, the first
        failure is raised; others are logged. What is killed in the middle leaves every table whole,
        and the next one goes on.
        """
        self._done, self._failed, self._reads = {}, {}, []
        self._look_again()
        failures: list[LocalQueueError] = []
        for view in self.definitions.views.values():
            try:
                self._bring(view)
            except LocalQueueError as error:
                if error not in failures:
                    failures.append(error)
        for failure in failures[1:]:
            log.error("%s", failure)
        if failures:
            raise failures[0]
        return list(self._done.values())

    def _look_again(self) -> None:
        """Whatever is read from now on is read as it is now."""
        self._ready, self._elsewhere = {}, set()

    # --- names, as queries find them --------------------------------------------------------------
    def prepare(self, name: str) -> None:
        key = name.lower()
        view = self.definitions.views.get(key)
        if view is not None:
            self._bring(view)
        if key not in self._ready:
            self._ready[key] = self._show(key if view is None else view.name)
        if self._reads:
            self._reads[-1].add(self._ready[key])
            self._reads[-1].elsewhere |= key in self._elsewhere

    def prepare_stream(self, name: str) -> str:
        if not self._reads:
            raise ConfigurationError(f"{self.file.name}: read streams inside of a definition")
        reads, key = self._reads[-1], name.lower()
        where = reads.view.where
        if reads.view.kind is not Kind.STREAMING_TABLE:
            raise ConfigurationError(
                f"{where}: the {reads.view.kind} {reads.view.name!r} reads {name!r} as a stream;"
                " only a streaming table can. Read the table itself"
            )
        check_streamed(key, where)
        source = self.lake.table(key)
        if source is None:
            raise ConfigurationError(f"{where}: the lake has no table {name!r} yet; run a pipeline")
        shown = f"new_rows_of_{key}"
        if shown not in reads.streams:
            reader = table_of(self.lake, reads.view)
            news = new_rows(self.lake, source, reader, f"localqueue/flow/{reads.flow}")
            news.read(self._spark, source).createOrReplaceTempView(shown)
            reads.streams.add(shown)
            reads.floors.update(news.floors)
            reads.moves.update(news.moves)
        return shown

    def reads_elsewhere(self) -> None:
        if self._reads:
            self._reads[-1].elsewhere = True

    def _show(self, name: str) -> dict[str, int]:
        """Make a table a view of the session; nothing when there is none, which Spark will say."""
        shown = rollups.SHOWN.get(name)
        table = self.lake.table(MINUTES.name if shown else name)
        if table is None:
            return {}
        rows = read_table(self._spark, table)
        (shown(rows) if shown else rows).createOrReplaceTempView(name)
        return {table.name: table.version}

    # --- views ------------------------------------------------------------------------------------
    def _bring(self, view: View) -> None:
        key = view.name.lower()
        if key in self._done:
            return
        if key in self._failed:
            raise self._failed[key]
        waiting = [reads.view.name for reads in self._reads]
        if view.name in waiting:
            circle = " → ".join([*waiting[waiting.index(view.name) :], view.name])
            raise ConfigurationError(f"{view.where}: views read each other in a circle: {circle}")
        try:
            match view.kind:
                case Kind.MATERIALIZED_VIEW:
                    rows = self._replace(view)
                case Kind.STREAMING_TABLE:
                    rows = self._add(view)
                case Kind.TEMPORARY_VIEW:
                    self._name(view)
                    return
        except LocalQueueError as error:
            self._failed[key] = error
            raise
        self._done[key] = Refreshed(view.name, view.kind, rows)

    def _name(self, view: View) -> None:
        if view.name.lower() not in self._ready:
            (query,) = view.queries
            with self._made(view, query) as (rows, reads):
                rows.createOrReplaceTempView(view.name)
            # Who reads it reads what it reads.
            self._ready[view.name.lower()] = reads.versions
            if reads.elsewhere:
                self._elsewhere.add(view.name.lower())

    def _replace(self, view: View) -> int | None:
        (query,) = view.queries
        for _ in range(TRIES):
            table = table_of(self.lake, view)
            with self._made(view, query) as (rows, reads):
                made_of = {"file": self._digest, "tables": reads.versions}
                if table is not None and not reads.elsewhere and is_made_of(table, made_of):
                    return None
                definition = definition_of(view, rows.schema)
                is_new = table is None
                table = table or self.lake.create(definition)
                # Rows that somebody else made meanwhile may be newer than these.
                n = None
                if not (is_new and has_rows_of(table)):
                    n = replace_rows(table, definition, rows, made_of)
            if n is not None:
                return n
            self._look_again()
        raise busy(view)

    def _add(self, view: View) -> int | None:
        added = [n for query in view.queries if (n := self._add_of(view, query)) is not None]
        return sum(added) if added else None

    def _add_of(self, view: View, query: Query) -> int | None:
        for _ in range(TRIES):
            with self._made(view, query) as (rows, reads):
                if not reads.streams:
                    raise ConfigurationError(
                        f"{query.where}: the streaming table {view.name!r} reads no stream; write"
                        " STREAM(events) or spark.readStream.table, or make it a materialized view"
                    )
                check_endless(rows, reads.streams, query.where)
                definition = definition_of(view, rows.schema)
                table = self.lake.create(definition)
                if not reads.moves:
                    return None
                if any(table.version_of(each) != seq for each, seq in reads.floors.items()):
                    continue
                n = add_rows(table, grown(table, definition), rows, reads.moves)
            if n is not None:
                return n
        raise busy(view)

    @contextmanager
    def _made(self, view: View, query: Query) -> Iterator[tuple[DataFrame, _Reads]]:
        """The rows of a query, to be used inside; what goes wrong is said with its place."""
        reads = _Reads(view, query.name)
        self._reads.append(reads)
        try:
            yield self._asked(query), reads
        except (AnalysisException, ParseException) as error:
            raise ConfigurationError(f"{query.where}: {view.name}: {first_line(error)}") from error
        except PySparkException as error:
            raise failure_of(error) from error
        finally:
            self._reads.pop()

    def _asked(self, query: Query) -> DataFrame:
        try:
            rows = query.make()
        except (LocalQueueError, PySparkException):
            raise
        except Exception as error:
            where = line_of(error, self.file)
            raise ConfigurationError(
                f"{where}: {query.name}: {type(error).__name__}: {first_line(error)}"
            ) from error
        if not hasattr(rows, "createOrReplaceTempView"):
            raise ConfigurationError(
                f"{query.where}: {query.name!r} returns {type(rows).__name__}, and no DataFrame"
            )
        return rows
