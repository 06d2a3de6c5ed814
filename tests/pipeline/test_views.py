"""Views of a file: tables of the lake that are what their definitions say, and nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from localqueue import PersistentQueue
from localqueue.errors import ConfigurationError
from localqueue.failpoints import listening
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.places import Feed
from localqueue.spark.pipeline.read_table import read_table
from localqueue.spark.pipeline.views import Views, keeping
from tests.pipeline.lakes import fill, minute
from tests.pipeline.lives import bring
from tests.pipeline.s3_server import s3_server, storage_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

duckdb = pytest.importorskip("duckdb")
extension = pytest.importorskip("duckdb_extension_delta", reason="DuckDB reads Delta Lake with it")

SQL = """
-- How lives end; a semicolon in here; is no end.
CREATE MATERIALIZED VIEW endings COMMENT 'how lives end' AS
SELECT queue, outcome, count(*) AS n, max(ended_at) AS newest
FROM messages GROUP BY queue, outcome;

CREATE STREAMING TABLE failures AS
SELECT store, seq, queue, message_id, error_type, ended_at AS at, ';' AS mark
FROM STREAM(attempts) WHERE error_type IS NOT NULL;
"""

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import functions as f


@dp.temporary_view
def ended():
    return spark.table("messages").where("outcome = 'acked'")


@dp.materialized_view(comment="who did how much")
def busy():
    return spark.table("ended").groupBy("worker").agg(f.count("*").alias("n"))


@dp.table
def failures():
    return spark.readStream.table("attempts").where("error_type IS NOT NULL").select(
        "seq", "queue", "error_type"
    )


@dp.materialized_view
def failing():
    return spark.sql("SELECT queue, count(*) AS n FROM failures GROUP BY queue")
"""


def written(folder: Path, text: str, name: str = "views.sql") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(f"{lake.location.uri}/{table}").to_pyarrow_table().to_pylist()
    )
    return found


def refreshed(views: Views) -> dict[str, int | None]:
    return {each.name: each.rows for each in views.refresh()}


def test_views_are_what_their_queries_say(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    bring(lake, 10, failed=3)
    views = Views(lake, written(tmp_path, SQL), spark)

    assert refreshed(views) == {"endings": 2, "failures": 3}
    assert {row["outcome"]: row["n"] for row in rows(lake, "endings")} == {
        "acked": 7,
        "dead_lettered": 3,
    }
    assert refreshed(views) == {"endings": None, "failures": None}

    bring(lake, 4, failed=1)
    assert refreshed(views) == {"endings": 2, "failures": 1}
    assert {row["outcome"]: row["n"] for row in rows(lake, "endings")} == {
        "acked": 10,
        "dead_lettered": 4,
    }
    assert len({row["seq"] for row in rows(lake, "failures")}) == len(rows(lake, "failures")) == 4
    assert {row["mark"] for row in rows(lake, "failures")} == {";"}


def test_views_are_written_as_declarative_pipelines_are(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """Also before those that they read."""
    bring(lake, 10, failed=3)
    views = Views(lake, written(tmp_path, PYTHON, "views.py"), spark)

    assert refreshed(views) == {"busy": 1, "failures": 3, "failing": 1}
    assert rows(lake, "busy") == [{"worker": "w1", "n": 7}]
    assert rows(lake, "failing") == [{"queue": "jobs", "n": 3}]
    assert not lake.table("ended")
    assert refreshed(views) == {"busy": None, "failures": None, "failing": None}


def test_views_find_the_rates_of_minutes_hours_and_days(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    fill(lake, MINUTES, [minute(n, attempts=4, failures=n) for n in range(2)])
    spans = " UNION ALL ".join(
        f"SELECT '{name}' AS name, max(failure_rate) AS most FROM {name}"
        for name in ("minutes", "hours", "days")
    )
    file = written(tmp_path, f"CREATE MATERIALIZED VIEW failing AS {spans};")

    Views(lake, file, spark).refresh()

    told = {row["name"]: row["most"] for row in rows(lake, "failing")}
    assert told == {"minutes": 0.25, "hours": 0.125, "days": 0.125}


def test_others_read_views_like_every_table(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    bring(lake, 6, failed=2)
    Views(lake, written(tmp_path, SQL), spark).refresh()

    [path] = Path(extension.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    with duckdb.connect() as db:
        db.execute(f"LOAD '{path}'")
        found = db.sql(
            f"SELECT outcome, n FROM delta_scan('{lake.location.uri}/endings') ORDER BY n"
        ).fetchall()
    assert found == [("dead_lettered", 2), ("acked", 4)]


def test_views_of_a_lake_in_an_object_store(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("moto", reason="the S3 server of the tests")
    with s3_server() as port:
        lake = Lake("s3://lake/with/views", storage_options(f"http://127.0.0.1:{port}"))
        views = Views(lake, written(tmp_path, SQL), spark)
        bring(lake, 6, failed=2)
        assert refreshed(views) == {"endings": 2, "failures": 2}
        bring(lake, 1, failed=1)

        assert refreshed(views) == {"endings": 2, "failures": 1}
        assert refreshed(views) == {"endings": None, "failures": None}

        table = lake.table("failures")
        assert table is not None
        assert read_table(spark, table).count() == 3


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("table", ["endings", "failures"])
def test_what_ends_in_the_middle_is_neither_lost_nor_twice(
    spark: SparkSession, lake: Lake, tmp_path: Path, point: str, table: str,
) -> None:  # fmt: skip
    bring(lake, 6, failed=2)
    views = Views(lake, written(tmp_path, SQL), spark)

    class Killed(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == f"views.{point}-{table}":
            raise Killed

    with pytest.raises(Killed), listening(die):
        views.refresh()
    views.refresh()

    assert sorted(row["n"] for row in rows(lake, "endings")) == [2, 4]
    assert len(rows(lake, "failures")) == 2


def test_two_who_refresh_at_once_add_nothing_twice(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    bring(lake, 6, failed=2)
    file = written(tmp_path, SQL)
    one, other = Views(lake, file, spark), Views(lake, file, spark)

    def between(reached: str) -> None:
        if reached in ("views.before-endings", "views.before-failures"):
            with listening(lambda _: None):
                other.refresh()

    with listening(between):
        one.refresh()

    assert sorted(row["n"] for row in rows(lake, "endings")) == [2, 4]
    assert len(rows(lake, "failures")) == 2


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "there"])
def test_who_comes_second_leaves_newer_rows(
    spark: SparkSession, lake: Lake, tmp_path: Path, is_new: bool
) -> None:
    """More has come to the lake meanwhile, and another has it in the view already."""
    bring(lake, 6, failed=2)
    file = written(tmp_path, SQL)
    one, other = Views(lake, file, spark), Views(lake, file, spark)
    if not is_new:
        other.refresh()
        bring(lake, 1)

    def between(reached: str) -> None:
        if reached == "views.before-endings" and not took:
            took.append(reached)
            bring(lake, 3)
            other.refresh()

    took: list[str] = []
    with listening(between):
        one.refresh()

    assert sum(row["n"] for row in rows(lake, "endings")) == (9 if is_new else 10)
    assert refreshed(other)["endings"] is None


def test_a_view_that_fails_keeps_no_other_from_its_rows(
    spark: SparkSession, lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bring(lake, 6, failed=2)
    text = """
    CREATE MATERIALIZED VIEW a_bad AS SELECT * FROM nowhere;
    CREATE MATERIALIZED VIEW b_of_bad AS SELECT * FROM a_bad;
    CREATE MATERIALIZED VIEW c_worse AS SELECT no_column FROM messages;
    """
    views = Views(lake, written(tmp_path, text + SQL), spark)

    with pytest.raises(ConfigurationError, match=r"a_bad: .*nowhere"):
        views.refresh()

    assert sorted(row["n"] for row in rows(lake, "endings")) == [2, 4]
    assert len(rows(lake, "failures")) == 2
    assert lake.table("b_of_bad") is None
    (also,) = caplog.messages
    assert also.startswith("views.sql:4: c_worse: ")


def test_a_definition_that_changed_is_made_anew_with_its_new_columns(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    bring(lake, 6, failed=2)
    Views(lake, written(tmp_path, SQL), spark).refresh()
    bring(lake, 1, failed=1)
    changed = SQL.replace("count(*) AS n", "'x' AS n, min(waited) AS shortest")
    changed = changed.replace("';' AS mark", "worker")

    Views(lake, written(tmp_path, changed), spark).refresh()

    assert {row["n"] for row in rows(lake, "endings")} == {"x"}
    assert "shortest" in rows(lake, "endings")[0]
    marks = [(row["mark"], row["worker"]) for row in rows(lake, "failures")]
    assert sorted(marks, key=str) == [(";", None), (";", None), (None, "w1")]


@pytest.mark.parametrize("column", ["seq", "queue"])
def test_small_files_of_a_streaming_table_are_joined(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """Whether or not a column tells their order."""
    monkeypatch.setattr(keeping, "MANY", 3)
    text = f"CREATE STREAMING TABLE ends AS SELECT {column} FROM STREAM(messages)"
    views = Views(lake, written(tmp_path, text), spark)
    for _ in range(3):
        bring(lake, 2)
        views.refresh()

    assert refreshed(views) == {"ends": None}
    assert len(rows(lake, "ends")) == 6
    table = lake.table("ends")
    assert table is not None
    assert len(table.files()) == 1


def test_several_flows_fill_one_table(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    text = """
from pyspark import pipelines as dp

dp.create_streaming_table("ends")

@dp.append_flow(target="ends")
def of_leases():
    return spark.readStream.table("attempts").selectExpr("'lease' AS what", "seq")

@dp.append_flow(target="ends")
def of_lives():
    return spark.sql("SELECT 'life' AS what, seq FROM STREAM messages")
"""
    bring(lake, 5, failed=0)
    views = Views(lake, written(tmp_path, text, "views.py"), spark)

    assert refreshed(views) == {"ends": 10}
    assert refreshed(views) == {"ends": None}
    assert len({(row["what"], row["seq"]) for row in rows(lake, "ends")}) == 10


def test_streams_are_of_all_that_comes_to_the_lake(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """Of several stores, and of queues that come by pipelines of their own."""
    ways = [(Feed(("it's \\ here",)), "a" * 16), (Feed(("b", "c")), "a" * 16), (Feed(), "b" * 16)]
    views = Views(lake, written(tmp_path, SQL), spark)
    for feed, store in ways:
        bring(lake, 3, failed=1, feed=feed, store=store)
        assert refreshed(views)["failures"] == 1
    for feed, store in ways:
        bring(lake, 2, failed=2, feed=feed, store=store)

    assert refreshed(views)["failures"] == 6
    assert len({(row["store"], row["queue"], row["seq"]) for row in rows(lake, "failures")}) == 9


def test_what_is_read_elsewhere_is_read_every_time(
    spark: SparkSession, lake: Lake, url: str, tmp_path: Path
) -> None:
    text = f"""
from pyspark import pipelines as dp

@dp.materialized_view
def waiting():
    source = spark.read.format("localqueue").options(url="{url}", queue="jobs", columns="id")
    return source.load().selectExpr("count(*) AS n")
"""
    queue = PersistentQueue[Any]("jobs", store=url)
    queue.put_many("abc")
    bring(lake, 1)
    views = Views(lake, written(tmp_path, text, "views.py"), spark)
    views.refresh()
    queue.put("d")

    views.refresh()

    assert rows(lake, "waiting") == [{"n": 4}]


def test_a_pipeline_brings_its_views(
    spark: SparkSession, url: str, lake: Lake, tmp_path: Path
) -> None:
    queue = PersistentQueue[Any]("jobs", store=url)
    queue.put_many(range(6))
    for message in queue.get_messages(6):
        if message.value < 2:
            queue.dead_letter(message, error=ValueError("no"))
        else:
            queue.ack(message)
    pipeline = Pipeline(url, lake, spark=spark, views=written(tmp_path, SQL))

    run = pipeline.run()

    assert run.added["endings"] == 2
    assert run.added["failures"] == 2
    assert sorted(row["n"] for row in rows(lake, "endings")) == [2, 4]
    assert "endings" not in pipeline.run().added


DP = "from pyspark import pipelines as dp\n\n"
BAD = {
    "SELECT 1": "only CREATE MATERIALIZED VIEW",
    "CREATE MATERIALIZED VIEW events AS SELECT 1 AS a": "a table 'events' of its own",
    "CREATE MATERIALIZED VIEW Hours AS SELECT 1 AS a": "a table 'hours' of its own",
    "CREATE MATERIALIZED VIEW `a b` AS SELECT 1 AS a": "cannot name a table",
    "CREATE MATERIALIZED VIEW a AS SELECT 1 AS x; CREATE MATERIALIZED VIEW A AS SELECT 1 AS x":
        "is there already, in views.sql:1",
    "CREATE MATERIALIZED VIEW a AS SELEKT 1": "PARSE_SYNTAX_ERROR",
    "": "defines no views",
}  # fmt: skip
BAD_WHEN_RUN = {
    "CREATE MATERIALIZED VIEW a AS SELECT * FROM nowhere": "views.sql:1: a: .*nowhere",
    "CREATE MATERIALIZED VIEW a AS SELECT no_column FROM messages": "no_column",
    "CREATE MATERIALIZED VIEW a AS SELECT count(*) FROM messages": "needs another name",
    "CREATE MATERIALIZED VIEW a AS SELECT 1 AS x, 2 AS X": "several columns",
    "CREATE MATERIALIZED VIEW a AS SELECT NULL AS x": "cast",
    "CREATE MATERIALIZED VIEW a AS SELECT x FROM b; CREATE MATERIALIZED VIEW b AS SELECT x FROM a":
        "in a circle: a → b → a",
    "CREATE MATERIALIZED VIEW a AS SELECT seq FROM STREAM(events)": "only a streaming table can",
    "CREATE STREAMING TABLE a AS SELECT seq FROM events": "reads no stream",
    "CREATE STREAMING TABLE a AS SELECT * FROM STREAM(minutes)": "cannot be streamed",
    "CREATE STREAMING TABLE a AS SELECT queue, count(*) AS n FROM STREAM(events) GROUP BY queue":
        "sums up all rows of a stream",
    "CREATE STREAMING TABLE a AS SELECT DISTINCT queue FROM STREAM events": "all rows of a stream",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_cannot_be_meant_is_refused(
    spark: SparkSession, lake: Lake, tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigurationError, match=BAD[text]) as refused:
        Views(lake, written(tmp_path, text), spark)

    assert str(refused.value).startswith("views.sql")


@pytest.fixture
def filled(lake: Lake) -> Lake:
    bring(lake, 6, failed=2)
    return lake


@pytest.mark.parametrize("text", BAD_WHEN_RUN)
def test_a_query_that_cannot_be_meant_is_refused_with_its_place(
    spark: SparkSession, filled: Lake, tmp_path: Path, text: str
) -> None:
    views = Views(filled, written(tmp_path, text), spark)

    with pytest.raises(ConfigurationError, match=BAD_WHEN_RUN[text]) as refused:
        views.refresh()

    assert str(refused.value).startswith("views.sql:1")
    assert filled.table("a") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def broken(:", "views.py:1: SyntaxError"),
        ("x = 1 / 0", "views.py:1: ZeroDivisionError"),
        (f"{DP}@dp.materialized_view\ndef a():\n    return 5",
         "views.py:3: 'a' returns int"),
        (f"{DP}@dp.materialized_view\ndef a():\n    return no",
         "views.py:5: a: NameError"),
        (f"{DP}dp.create_sink('a', 'console')", "spark-pipelines"),
        (f"{DP}dp.create_streaming_table('a')", "append_flow"),
        (f"{DP}@dp.materialized_view(format='parquet')\ndef a():\n    return 5", "format"),
        (f"{DP}@dp.table\ndef a():\n    return spark.readStream.format('rate').load()",
         "run by spark-pipelines"),
    ],
)  # fmt: skip
def test_a_program_that_cannot_be_meant_is_refused_with_its_place(
    spark: SparkSession, filled: Lake, tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Views(filled, written(tmp_path, text, "views.py"), spark).refresh()


def test_a_table_that_is_no_view_is_left_alone(
    spark: SparkSession, filled: Lake, tmp_path: Path
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(f"{filled.location.uri}/mine", pa.table({"x": [1]}))
    views = Views(
        filled, written(tmp_path, "CREATE MATERIALIZED VIEW mine AS SELECT 2 AS x"), spark
    )

    with pytest.raises(ConfigurationError, match="is no view"):
        views.refresh()

    assert rows(filled, "mine") == [{"x": 1}]


def test_a_view_does_not_become_one_of_another_kind(
    spark: SparkSession, filled: Lake, tmp_path: Path
) -> None:
    text = "CREATE {} kinds AS SELECT seq FROM {}"
    stream = text.format("STREAMING TABLE", "STREAM(events)")
    Views(filled, written(tmp_path, stream), spark).refresh()
    whole = written(tmp_path, text.format("MATERIALIZED VIEW", "events"))

    with pytest.raises(ConfigurationError, match="is a streaming table in the lake"):
        Views(filled, whole, spark).refresh()
