"""``localqueue pipeline``: the journal of a store as tables of a lake, and what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localqueue.cli.arguments import moment, pairs, span
from localqueue.cli.arguments import store_url as store_url_of
from localqueue.cli.ending import Ending
from localqueue.cli.output import (
    needs_spark,
    note,
    quiet_java,
    say,
    show_csv,
    show_json,
    show_table,
)
from localqueue.cli.run_progress import showing
from localqueue.errors import StoreMissing
from localqueue.stores.masking import masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from localqueue.spark.pipeline.definition import Definition
    from localqueue.spark.pipeline.lake import Lake
    from localqueue.spark.pipeline.pipeline import Progress as Batch
    from localqueue.spark.pipeline.report.table_facts import TableFacts
    from localqueue.spark.pipeline.table import Table

app = typer.Typer(
    help="Bring what happens in queues to the tables of a lake, and look at it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE_URL", help="The store: sqlite:////path/to/file, or a path.")
]
LakeArgument = Annotated[
    str, typer.Argument(metavar="LAKE", help="A folder, or the URL of an object store (s3://…).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Lines of JSON instead of tables.")]
MasterOption = Annotated[
    str | None,
    typer.Option(metavar="MASTER", help="Spark's master, such as local[2] or spark://host:7077."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From this time on: 2026-01-31T08:00, or 24h for a day ago."),
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Up to this time, which is as for --since.")
]


# --- run ------------------------------------------------------------------------------------------
@app.command()
def run(
    store_url: StoreArgument,
    lake: LakeArgument,
    once: Annotated[
        bool,
        typer.Option(
            "--once/--continuous", help="Bring what is there now and end, or go on until Ctrl-C."
        ),
    ] = True,
    every: Annotated[
        float, typer.Option(min=0.0, help="With --continuous: seconds between two looks.")
    ] = 5.0,
    name: Annotated[
        str, typer.Option(help="Names the checkpoint and the consumer group pipeline:NAME.")
    ] = "default",
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="QUEUE", help="Only this queue; can be given several times."),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE=TIME", help="How long messages of a queue may wait: orders=30s."
        ),
    ] = None,
    retention: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE=TIME", help="How long rows are kept: events=30d."),
    ] = None,
    rows_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Events in one batch, at most.")
    ] = None,
    no_fail_on_data_loss: Annotated[
        bool,
        typer.Option(
            "--no-fail-on-data-loss",
            help="Events that were trimmed unread are noted in the table gaps, and no error.",
        ),
    ] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the journal of a store to the lake, each event once.

    Run it as often as you like, also several at a time: what is there already is left out. Ctrl-C
    ends after the batch that is being written.
    """
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.pipeline import ROWS_PER_BATCH, Pipeline

    url, where = store_url_of(store_url), Lake(lake)
    given: dict[str, Any] = {
        "name": name,
        "queues": queue,
        "retention": dict(pairs("--retention", retention)),
        "rows_per_batch": rows_per_batch or ROWS_PER_BATCH,
        "fail_on_data_loss": not no_fail_on_data_loss,
    }
    if slo:
        given["slo"] = {queue: limit.total_seconds() for queue, limit in pairs("--slo", slo)}
    # What cannot be meant is said before Spark has been waited for.
    Pipeline(url, where, **given)
    waiting = _lag(where, url, tuple(queue or ()))
    with showing(as_json, waiting if once else None) as shown:
        spark = _session(master)
        pipeline = Pipeline(url, where, spark=spark, **given)
        ending = Ending(pipeline, spark)

        def progress(batch: Batch) -> None:
            ending.batch_written(batch.batch)
            shown.batch(batch)

        with ending.on_interrupt():
            done = pipeline.run(once=once, every=every, on_progress=progress)
        shown.done(done)
    if ending.asked:
        raise typer.Exit(130)


def _lag(lake: Lake, url: str, queues: tuple[str, ...]) -> int:
    from localqueue.spark.pipeline.report.status import lag_of

    return lag_of(lake, url, queues)


# --- report ---------------------------------------------------------------------------------------
@app.command()
def report(
    lake: LakeArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    since: SinceOption = None,
    until: UntilOption = None,
    slo_wait: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long a message may wait, where run had no --slo."),
    ] = "60s",
    slo_target: Annotated[
        float, typer.Option(metavar="SHARE", help="How many should be in time, and not be lost.")
    ] = 0.99,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page about the queues, and show a summary of it here.

    The page needs nothing else: send it to somebody, or open it without a network.
    """
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.report import lines as text
        from localqueue.spark.pipeline.report.page import write_report
        from localqueue.spark.pipeline.report.slo import Slo

    slo = Slo(span("--slo-wait", slo_wait).total_seconds(), slo_target)
    figures = write_report(
        Lake(lake),
        output,
        since=moment("--since", since),
        until=moment("--until", until),
        slo=slo,
    )
    if as_json:
        show_json({"report": str(output), **text.as_dict(figures)})
        return
    say(text.headline(figures))
    rows = text.rows_of_queues(figures)
    if rows:
        say("")
        show_table(text.HEADINGS, rows)
    if figures.errors:
        say("")
        show_table(("times", "queue", "error"), text.rows_of_errors(figures))
    for remark in text.remarks(figures):
        say(remark)
    say(f"\nwritten to {output}")


# --- looking --------------------------------------------------------------------------------------
@app.command()
def tables(
    lake: LakeArgument,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="Show the columns of this table.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of the lake, or the columns of one."""
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.report import units
        from localqueue.spark.pipeline.report.table_facts import facts_of, tables_of

    if table is not None:
        facts = facts_of(_table(Lake(lake), table))
        if as_json:
            for name, kind in facts.columns:
                show_json({"column": name, "type": kind})
        else:
            show_table(("column", "type"), facts.columns)
        return
    found = tables_of(Lake(lake))
    if as_json:
        for each in found:
            show_json(_facts(each))
    elif not found:
        note(f"{masked(lake)} has no tables")
    else:
        show_table(
            ("table", "rows", "size", "files", "version", "changed (UTC)"),
            [
                (
                    t.name,
                    t.rows,
                    units.size(t.bytes),
                    t.files,
                    t.version,
                    units.moment(t.changed_at),
                )
                for t in found
            ],
        )


@app.command()
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
    put together.
    """
    with needs_spark():
        from pyspark.errors import PySparkException

        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.report.views import make_views

    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json cannot both be meant")
    there = Lake(lake)
    _some_tables(there)
    spark = _session(master)
    try:
        make_views(spark, there)
        answer = spark.sql(query)
        # One more than shown, to know that there are more.
        rows = (answer.limit(limit + 1) if limit else answer).collect()
    except PySparkException as error:
        raise typer.BadParameter(_first_line(error), param_hint="QUERY") from error
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


@app.command()
def status(
    lake: LakeArgument,
    store_url: Annotated[
        str | None,
        typer.Argument(metavar="STORE_URL", help="Also how far the lake is behind this store."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far the lake is: lag, last batch, tables, and the consumer groups of pipelines."""
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.report import units
        from localqueue.spark.pipeline.report.status import status_of

    found = status_of(Lake(lake), None if store_url is None else store_url_of(store_url))
    if as_json:
        show_json(asdict(found) | {"tables": [_facts(table) for table in found.tables]})
        return
    say(f"last batch    {units.moment(found.last_batch_at)} UTC")
    say(f"newest event  {units.moment(found.newest_event_at)} UTC")
    if found.store is not None:
        say("")
        show_table(
            ("queues", "the lake has up to", "the journal ends at", "lag"),
            [
                (", ".join(feed.queues) or "all", feed.position, found.store.journal_end, feed.lag)
                for feed in found.store.feeds
            ],
        )
        if found.store.groups:
            say("")
            show_table(
                ("consumer group", "position", "moved (UTC)"),
                [(g.name, g.position, units.moment(g.moved_at)) for g in found.store.groups],
            )
    say("")
    show_table(
        ("table", "version", "rows", "size", "changed (UTC)"),
        [
            (t.name, t.version, t.rows, units.size(t.bytes), units.moment(t.changed_at))
            for t in found.tables
        ],
    )


# --- looking after --------------------------------------------------------------------------------
@app.command()
def compact(
    lake: LakeArgument,
    table: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Only these tables.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Join the small files of tables. Pipelines do so as they go; this joins all there are."""
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.upkeep import compact as join

    for definition, found in _chosen(Lake(lake), table):
        gone = join(found, definition)
        _done(
            as_json, found.name, "files_gone", gone, f"{gone} files less, {len(found.files())} left"
        )


@app.command()
def vacuum(
    lake: LakeArgument,
    table: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Only these tables.")
    ] = None,
    hours: Annotated[
        int, typer.Option(min=1, help="Keep files that a commit of the last hours names.")
    ] = 24,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete files that no table needs any more. Pipelines do so once a day.

    No batch of a pipeline may have been running for longer than the hours.
    """
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake

    for _, found in _chosen(Lake(lake), table):
        gone = found.vacuum(hours=hours, pretend=dry_run)
        text = f"{len(gone)} files {'would be ' if dry_run else ''}deleted"
        _done(as_json, found.name, "files_deleted", len(gone), text)


def _done(as_json: bool, table: str, key: str, n: int, text: str) -> None:
    if as_json:
        show_json({"table": table, key: n})
    else:
        say(f"{table}: {text}")


def _chosen(lake: Lake, names: Sequence[str] | None) -> list[tuple[Definition, Table]]:
    """The tables of a pipeline that are there: those that are named, or all."""
    from localqueue.spark.pipeline.report.definitions import DEFINITIONS

    known = {definition.name: definition for definition in DEFINITIONS}
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(
                f"no table of a pipeline is called {name!r}; {', '.join(known)}"
            )
    _some_tables(lake)
    found = [(known[name], lake.table(name)) for name in names or known]
    if names:
        return [(definition, _table(lake, definition.name)) for definition, _ in found]
    return [(definition, table) for definition, table in found if table is not None]


# --- arguments ------------------------------------------------------------------------------------
def _table(lake: Lake, name: str) -> Table:
    found = lake.table(name)
    if found is None:
        raise StoreMissing(f"{masked(lake.location.uri)} has no table {name!r}")
    return found


def _some_tables(lake: Lake) -> None:
    from localqueue.spark.pipeline.report.table_facts import table_names

    if not table_names(lake):
        raise StoreMissing(f"{masked(lake.location.uri)} has no tables; localqueue pipeline run")


def _session(master: str | None) -> SparkSession:
    from localqueue.spark.spark_session import session

    with quiet_java():
        return session(master)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _facts(table: TableFacts) -> dict[str, Any]:
    found = asdict(table)
    del found["columns"]
    return found
