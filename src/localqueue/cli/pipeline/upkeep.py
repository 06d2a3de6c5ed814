"""``localqueue pipeline compact`` and ``vacuum``: looking after the files of a lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from localqueue.cli.output import needs_spark, say, show_json
from localqueue.cli.pipeline.arguments import JsonOption, LakeArgument
from localqueue.cli.pipeline.lakes import some_tables, table_of
from localqueue.errors import StoreMissing

if TYPE_CHECKING:
    from localqueue.spark.pipeline.definition import Definition
    from localqueue.spark.pipeline.lake import Lake
    from localqueue.spark.pipeline.table import Table


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
    """Delete files that no table needs any more, views included. Pipelines do so once a day.

    No batch of a pipeline may have been running for longer than the hours.
    """
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake

    for found in _made_by_pipelines(Lake(lake), table):
        gone = found.vacuum(hours=hours, pretend=dry_run)
        text = f"{len(gone)} files {'would be ' if dry_run else ''}deleted"
        _done(as_json, found.name, "files_deleted", len(gone), text)


def _done(as_json: bool, table: str, key: str, n: int, text: str) -> None:
    if as_json:
        show_json({"table": table, key: n})
    else:
        say(f"{table}: {text}")


def _made_by_pipelines(lake: Lake, names: Sequence[str] | None) -> list[Table]:
    """All tables of pipelines, views and topics too, that are named, or all; no strangers'."""
    from localqueue.spark.pipeline.report.table_facts import table_names

    some_tables(lake)
    tables = {name: lake.table(name) for name in table_names(lake)}
    found = {name: each for name, each in tables.items() if each and each.is_of_a_pipeline}
    for name in names or ():
        if name not in found:
            raise StoreMissing(
                f"{lake.location} has no table {name!r} of a pipeline; {', '.join(found)}"
            )
    return [found[name] for name in names or found]


def _chosen(lake: Lake, names: Sequence[str] | None) -> list[tuple[Definition, Table]]:
    """The tables of a pipeline that are there: those that are named, or all."""
    from localqueue.spark.pipeline.report.definitions import DEFINITIONS

    known = {definition.name: definition for definition in DEFINITIONS}
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(
                f"no table of a pipeline is called {name!r}; {', '.join(known)}"
            )
    some_tables(lake)
    found = [(known[name], lake.table(name)) for name in names or known]
    if names:
        return [(definition, table_of(lake, definition.name)) for definition, _ in found]
    return [(definition, table) for definition, table in found if table is not None]
