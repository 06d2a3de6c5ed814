"""``localqueue pipeline report``: a page about the queues, and a summary of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from localqueue.cli.arguments import moment, span
from localqueue.cli.output import needs_spark, say, show_json, show_table
from localqueue.cli.pipeline.arguments import (
    JsonOption,
    LakeArgument,
    SinceOption,
    UntilOption,
)
from localqueue.cli.pipeline.lakes import some_tables


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
        from localqueue.spark.pipeline.report.page import check_folder_of, write_report
        from localqueue.spark.pipeline.report.slo import Slo

    slo = Slo(span("--slo-wait", slo_wait).total_seconds(), slo_target)
    first, last = moment("--since", since), moment("--until", until)
    if first is not None and first > datetime.now(UTC):
        raise typer.BadParameter(f"{since} is still to come", param_hint="--since")
    if first is not None and last is not None and last <= first:
        raise typer.BadParameter(
            f"{until} is not after {since}; 2h means two hours ago", param_hint="--until"
        )
    check_folder_of(output)
    some_tables(Lake(lake))
    figures = write_report(Lake(lake), output, since=first, until=last, slo=slo)
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
