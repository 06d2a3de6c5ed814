"""Gold ``errors``: what went wrong, one row for what is alike in an hour of a queue."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from localqueue.spark.pipeline.errors import ERRORS_STEP
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.places import Feed
from localqueue.spark.pipeline.writing import LakeWriter
from tests.pipeline.journals import HERE, START, ended, event, journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def failed(seq: int, what: str = "ValueError", **columns: Any) -> dict[str, Any]:
    error = {"error_type": what, "error_text": f"{what} {seq}", "fingerprint": what.lower()}
    return ended(seq, **({"kind": "released", "to_state": "delayed"} | error | columns))


def errors(lake: Lake) -> dict[tuple[str, int, str], dict[str, Any]]:
    """By queue, hours after the start and fingerprint; two rows for one key are a failure."""
    rows = DeltaTable(f"{lake.location.uri}/errors").to_pyarrow_table().to_pylist()
    found = {
        (row["queue"], (row["hour"] - START) // timedelta(hours=1), row["fingerprint"]): row
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def test_errors_that_are_alike_are_one_row_an_hour_whichever_batch_brings_them(
    spark: SparkSession, lake: Lake
) -> None:
    bringing = LakeWriter(spark, lake, Feed(), (), (ERRORS_STEP,))
    bringing.expect(HERE)
    rows = [
        event(1),
        failed(2, worker="w1"),
        failed(3, "KeyError"),
        failed(4, queue="mails"),
        ended(5),
        failed(6, kind="dead_lettered", to_state="dead", worker="w2"),
        failed(7, at=START + timedelta(hours=1, seconds=7)),
        # The clock was set back: an hour that is there already.
        failed(8, worker="w3", at=START + timedelta(seconds=1)),
    ]

    bringing.write(journal(spark, rows[:3]))
    bringing.write(journal(spark, rows[3:7]))
    bringing.write(journal(spark, rows[7:]))

    found = errors(lake)
    assert {key: row["count"] for key, row in found.items()} == {
        ("jobs", 0, "valueerror"): 3,
        ("jobs", 0, "keyerror"): 1,
        ("mails", 0, "valueerror"): 1,
        ("jobs", 1, "valueerror"): 1,
    }
    one = found["jobs", 0, "valueerror"]
    assert (one["died"], one["error_type"], one["error_text"]) == (1, "ValueError", "ValueError 8")
    assert (one["worker"], one["message_id"]) == ("w3", rows[7]["message_id"])
    assert (one["first_at"], one["last_at"]) == (rows[7]["at"], rows[5]["at"])
    assert (one["first_seq"], one["last_seq"]) == (2, 8)


def test_a_batch_without_errors_adds_no_row(spark: SparkSession, lake: Lake) -> None:
    bringing = LakeWriter(spark, lake, Feed(), (), (ERRORS_STEP,))
    bringing.expect(HERE)

    bringing.write(journal(spark, [event(1), ended(2)]))

    assert errors(lake) == {}
