"""``localqueue pipeline sql``: questions to the tables of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from localqueue.cli.output import needs_spark, note, show_csv, show_json, show_table
from localqueue.cli.pipeline.arguments import JsonOption, LakeArgument, MasterOption
from localqueue.cli.pipeline.lakes import some_tables, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASKING = ("DESC", "DESCRIBE", "EXPLAIN", "SHOW")
"""How statements begin that are no query, and tell something."""


def sql(
    lake: LakeArgument,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="SQL of Spark: 'SELECT … FROM messages'.")
    ],
    limit: Annotated[int, typer.Option(min=0, help="Rows at most; 0 for all.")] = 100,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV instead of a table.")] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the tables something, in SQL, with Spark on this machine.

    Every table of the lake is there under its name, and so are hours and days, which are minutes
    put together; these three have their rates too. It only asks: a statement that would change
    something is refused.
    """
    with needs_spark():
        from pyspark.errors import PySparkException

        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.report.views import make_views
        from localqueue.spark.pipeline.views.problems import first_line

    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json cannot both be meant")
    there = Lake(lake)
    some_tables(there)
    spark = spark_session(master)
    names: list[str] = []
    try:
        names = make_views(spark, there)
        check_asks(spark, query)
        answer = spark.sql(query)
        # One more than shown, to know that there are more.
        rows = (answer.limit(limit + 1) if limit else answer).collect()
    except PySparkException as error:
        said = first_line(error)
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            said = f"{said} The lake has {', '.join(sorted(names))}."
        raise typer.BadParameter(said, param_hint="QUERY") from error
    shown, columns = rows[:limit] if limit else rows, answer.columns
    if as_json:
        for row in shown:
            show_json(dict(zip(columns, row, strict=True)))
    elif as_csv:
        show_csv(columns, shown)
    elif columns:
        show_table(columns, shown)
    if limit and len(rows) > limit:
        note(f"the first {limit} rows; --limit 0 shows all")


def check_asks(spark: SparkSession, query: str) -> None:
    """Refuse what is no question: what Spark reads are the very files of the lake."""
    from pyspark.errors import ParseException

    parser = spark._jsparkSession.sessionState().sqlParser()
    parser.parsePlan(query)
    if query.split(maxsplit=1)[0].upper() in _ASKING:
        return
    try:
        # Only a query can stand here.
        parser.parsePlan(f"SELECT * FROM (\n{query.rstrip().rstrip(';')}\n)")
    except ParseException as error:
        raise typer.BadParameter(
            "it would change something, and here tables are only asked; write SELECT …",
            param_hint="QUERY",
        ) from error
