"""``localqueue pipeline tables``: what a lake has."""

from __future__ import annotations

from typing import Annotated

import typer

from localqueue.cli.output import needs_spark, show_json, show_table
from localqueue.cli.pipeline.arguments import JsonOption, LakeArgument
from localqueue.cli.pipeline.lakes import facts_of_table, some_tables, table_of


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
        facts = facts_of(table_of(Lake(lake), table))
        if as_json:
            for name, kind in facts.columns:
                show_json({"column": name, "type": kind})
        else:
            show_table(("column", "type"), facts.columns)
        return
    some_tables(Lake(lake))
    found = tables_of(Lake(lake))
    if as_json:
        for each in found:
            show_json(facts_of_table(each))
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
