"""``localqueue pipeline views``: tables of your own, brought up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from localqueue.cli.output import needs_spark, show_json, show_table
from localqueue.cli.pipeline.arguments import JsonOption, LakeArgument, MasterOption
from localqueue.cli.pipeline.lakes import some_tables, spark_session


def views(
    lake: LakeArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Definitions of views, in .sql or .py.")
    ],
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the views that a file defines up to date, out of what the lake has.

    Materialized views are made anew when a table that they read has changed; streaming tables get
    what comes of new rows. `pipeline run --views FILE` does so after each run.
    """
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.views import Views
        from localqueue.spark.pipeline.views.files import check_file

    where = Lake(lake)
    some_tables(where)
    check_file(file)
    refreshed = Views(where, file, spark_session(master)).refresh()
    if as_json:
        for each in refreshed:
            show_json({"view": each.name, "kind": each.kind, "rows": each.rows})
    else:
        show_table(
            ("view", "kind", "rows"),
            [
                (each.name, each.kind, "up to date" if each.rows is None else each.rows)
                for each in refreshed
            ],
        )
