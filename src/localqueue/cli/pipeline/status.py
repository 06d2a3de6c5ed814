"""``localqueue pipeline status``: how far a lake is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from localqueue.cli.arguments import store_url as store_url_of
from localqueue.cli.output import needs_spark, say, show_json, show_table
from localqueue.cli.pipeline.arguments import JsonOption, LakeArgument
from localqueue.cli.pipeline.lakes import facts_of_table, some_tables


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

    some_tables(Lake(lake))
    found = status_of(Lake(lake), None if store_url is None else store_url_of(store_url))
    if as_json:
        show_json(asdict(found) | {"tables": [facts_of_table(table) for table in found.tables]})
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
