"""The group ``localqueue pipeline``: its commands, in the order in which its help has them."""

from __future__ import annotations

import typer

from localqueue.cli.pipeline import (
    alerts,
    declarative,
    groups,
    replay,
    report,
    run,
    sql,
    status,
    tables,
    upkeep,
    views,
)

app = typer.Typer(
    help="Bring what happens in queues to the tables of a lake, and look at it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

for command in (
    run.run,
    report.report,
    tables.tables,
    sql.sql,
    status.status,
    views.views,
    declarative.declarative,
    replay.replay,
    groups.groups,
    alerts.alerts,
    upkeep.compact,
    upkeep.vacuum,
):
    app.command()(command)
