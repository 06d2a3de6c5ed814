"""``localqueue pipeline groups``: who reads the journal of a store, and how far each is."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from localqueue.cli.arguments import store_url as store_url_of
from localqueue.cli.output import needs_spark, note, say, show_json, show_table
from localqueue.cli.pipeline.arguments import JsonOption, StoreArgument

HEADINGS = (
    "group",
    "position",
    "lag",
    "moved (UTC)",
    "age",
    "oldest unread (UTC)",
    "kept for",
    "runs",
)


def groups(
    store_url: StoreArgument,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take this group away.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before taking away.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the consumer groups of a store: how far each has read the journal, and its lag.

    The journal is kept for every group from its position on, up to its limit of time. One that
    nobody uses any more is better taken away.
    """
    with needs_spark():
        from localqueue.spark.pipeline import groups as consumer
        from localqueue.spark.pipeline.report import units

    url = store_url_of(store_url)
    found = consumer.groups(url)
    if remove is not None:
        known = {group.name: group for group in found}
        if remove in known and not yes:
            _ask(remove, known[remove].lag)
        gone = consumer.remove_group(url, remove)
        if as_json:
            show_json({"removed": gone.name, "position": gone.position, "lag": gone.lag})
        else:
            say(f"{gone.name} is gone; {gone.lag:,} events are not kept for it any more")
        return
    if as_json:
        for group in found:
            show_json(asdict(group))
    elif not found:
        note("the store has no consumer groups")
    else:
        show_table(
            HEADINGS,
            [
                (
                    group.name,
                    group.position,
                    group.lag,
                    units.moment(group.moved_at),
                    units.duration(group.age),
                    None if group.oldest_at is None else units.moment(group.oldest_at),
                    units.duration(group.kept_for),
                    group.is_running,
                )
                for group in found
            ],
        )


def _ask(name: str, lag: int) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here; add --yes", param_hint="--remove")
    typer.confirm(
        f"Take away {name}? {lag:,} events that it has not read may be trimmed then.", abort=True
    )
