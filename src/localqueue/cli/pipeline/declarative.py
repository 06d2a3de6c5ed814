"""``localqueue pipeline declarative``: Spark's Declarative Pipelines, with queues as sources."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from localqueue.cli.output import needs_spark, say, show_json
from localqueue.cli.pipeline.arguments import JsonOption
from localqueue.cli.starting_java import quiet_java


def declarative(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The pipeline's YAML file.")],
    refresh: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Only this one; can be given several times."),
    ] = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Empty this one first; can be given several times."),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Empty all of them first.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Look for mistakes, and run nothing.")
    ] = False,
    master: Annotated[
        str,
        typer.Option(metavar="MASTER", help="local[2], or sc://host:15002 for Spark Connect."),
    ] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of Spark that a spec cannot have."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline of Spark's own, whose definitions may read queues.

    The same as `spark-pipelines run`, which fails with sources in Python. Its tables are in Spark's
    warehouse; `localqueue pipeline views` keeps tables of a lake.
    """
    with needs_spark():
        from localqueue.spark.pipeline.declarative import run_declarative

    def tell(at: datetime, text: str) -> None:
        if as_json:
            show_json({"at": at, "event": text})
        else:
            say(f"{at:%H:%M:%S} {text}")

    settings = dict(_setting(text) for text in conf or ())
    with quiet_java():
        run_declarative(
            spec,
            master=master,
            config=settings,
            refresh=refresh or (),
            full_refresh=full_refresh or (),
            full_refresh_all=full_refresh_all,
            dry_run=dry_run,
            on_event=tell,
        )


def _setting(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair or not name.startswith("spark."):
        raise typer.BadParameter(f"{text!r} is not spark.NAME=VALUE", param_hint="--conf")
    return name, value
