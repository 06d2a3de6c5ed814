"""Batches whose tasks run in the process of the test, one after the other: it needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.tables import SILVER, gold
from localqueue.spark.pipeline.writing import LakeWriter
from tests.pipeline.journals import HERE, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Rows = Sequence[dict[str, Any]]


class Report(NamedTuple):
    report: str


class _Reports:
    def __init__(self, reports: list[Report]) -> None:
        self._reports = reports

    def collect(self) -> list[Report]:
        return self._reports


class _Batch:
    def __init__(self, parts: Sequence[Rows]) -> None:
        schema = to_arrow_schema(SCHEMA, timezone="UTC")
        self._parts = [pa.RecordBatch.from_pylist(list(part), schema) for part in parts]

    def mapInArrow(self, task: Task, schema: str) -> _Reports:  # noqa: N802
        return _Reports(
            [
                Report(text)
                for part in self._parts
                for made in task(iter([part]))
                for text in made["report"].to_pylist()
            ]
        )


def batch(*parts: Rows) -> DataFrame:
    """Rows of a journal, by task."""
    return cast("DataFrame", _Batch(parts))


def writer_here(lake: Lake, *places: Place, feed: Feed | None = None) -> LakeWriter:
    """It can write batches as long as nobody disturbs it; to read tables it would need Spark."""
    nowhere = cast("SparkSession", None)
    made = LakeWriter(nowhere, lake, feed or Feed(), SILVER, gold())
    for place in places or (HERE,):
        made.expect(place)
    return made
