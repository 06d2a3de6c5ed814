"""Journals that were never written by a store: rows as ``content=journal`` gives them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from localqueue.spark.options import Options
from localqueue.spark.pipeline.places import Place
from localqueue.spark.read.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORE = "0123456789abcdef"
HERE = Place(STORE, "0")
START = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)


def event(
    seq: int, kind: str = "enqueued", *, store: str = STORE, **columns: Any
) -> dict[str, Any]:
    """An event; one second after the one before it."""
    row: dict[str, Any] = dict.fromkeys(_NAMES)
    row |= {
        "position": f"{store}{seq:016x}",
        "seq": seq,
        "shard": "0",
        "at": START + timedelta(seconds=seq),
        "queue": "jobs",
        "message_id": f"{store}{seq:016x}",
        "kind": kind,
        "to_state": "ready" if kind == "enqueued" else None,
        "n": 1,
        "by": "worker",
    }
    return row | columns


def ended(seq: int, kind: str = "acked", **columns: Any) -> dict[str, Any]:
    """The end of a lease that waited three seconds and ran two."""
    at = START + timedelta(seconds=seq)
    lease: dict[str, Any] = {
        "from_state": "inflight",
        "attempt": 1,
        "worker": "w1",
        "enqueued_at": at - timedelta(seconds=5),
        "leased_at": at - timedelta(seconds=2),
        "waited": 3.0,
        "ran": 2.0,
    }
    return event(seq, kind, **(lease | columns))


def journal(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in _NAMES) for row in rows], SCHEMA)


_OPTIONS = Options(url="sqlite:////made.up", content="journal")
_OF_JOURNAL = spark_schema(_OPTIONS)
assert not isinstance(_OF_JOURNAL, str)
SCHEMA = _OF_JOURNAL
_NAMES = list(SCHEMA.names)
