"""What definitions find as ``spark``: a session whose tables are those of the lake.

Everything is asked of the real session, but names of tables go by here first: so it is known what
a query reads, and a view is brought up to date before another one reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.views.sql_text import tables_read, with_streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Tables(Protocol):
    """Who knows the tables."""

    def prepare(self, name: str) -> None:
        """The query that is being made reads this name, which is then a view of the session."""

    def prepare_stream(self, name: str) -> str:
        """It reads what is new in this table; the name under which the session has that."""

    def reads_elsewhere(self) -> None:
        """It reads something that is no table of the lake."""


class LakeSession:
    """A session, seen by a file of definitions."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark, self._tables = spark, tables

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def table(self, name: str) -> DataFrame:
        self._tables.prepare(name)
        return self._spark.table(name)

    def sql(self, query: str, *args: Any, **kwargs: Any) -> DataFrame:
        streams = {}
        for name, is_stream in tables_read(self._spark, query).items():
            if is_stream:
                streams[name] = self._tables.prepare_stream(name)
            else:
                self._tables.prepare(name)
        return self._spark.sql(with_streams(query, streams), *args, **kwargs)

    @property
    def read(self) -> _Reader:
        return _Reader(self)

    @property
    def readStream(self) -> _StreamReader:  # noqa: N802
        return _StreamReader(self)


class _Reader:
    """``spark.read``."""

    def __init__(self, session: LakeSession) -> None:
        self._session = session

    def table(self, name: str) -> DataFrame:
        return self._session.table(name)

    def __getattr__(self, name: str) -> Any:
        self._session._tables.reads_elsewhere()
        return getattr(self._session._spark.read, name)


class _StreamReader:
    """``spark.readStream``."""

    def __init__(self, session: LakeSession) -> None:
        self._session = session

    def table(self, name: str) -> DataFrame:
        return self._session._spark.table(self._session._tables.prepare_stream(name))

    def __getattr__(self, name: str) -> Any:
        raise ConfigurationError(
            f"spark.readStream.{name}: a streaming table of a lake reads tables of the lake, by"
            " spark.readStream.table(name). Streams of other sources, also of queues, are run by"
            " spark-pipelines"
        )
