"""``localqueue pipeline run``: the journal of a store, brought to a lake."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localqueue.cli.arguments import pairs
from localqueue.cli.arguments import store_url as store_url_of
from localqueue.cli.ending import Ending
from localqueue.cli.output import needs_spark, note
from localqueue.cli.pipeline.arguments import (
    JsonOption,
    LakeArgument,
    MasterOption,
    StoreArgument,
)
from localqueue.cli.pipeline.lakes import spark_session
from localqueue.cli.run_progress import showing
from localqueue.stores.open import open_store

if TYPE_CHECKING:
    from localqueue.spark.pipeline.lake import Lake
    from localqueue.spark.pipeline.pipeline import Progress as Batch


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
    compacted: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE=KEY[:VALUE]",
            help="Keep the latest value of each key of a queue as the table latest_QUEUE;"
            " KEY and VALUE are fields of its payloads: prices=sku:price.",
        ),
    ] = None,
    views: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Definitions of tables of your own, in .sql or .py."),
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
        from localqueue.spark.pipeline.compacted.topic import Compacted
        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.pipeline import ROWS_PER_BATCH, Pipeline

    url, where = store_url_of(store_url), Lake(lake)
    given: dict[str, Any] = {
        "name": name,
        "queues": queue,
        "retention": dict(pairs("--retention", retention)),
        "rows_per_batch": rows_per_batch or ROWS_PER_BATCH,
        "fail_on_data_loss": not no_fail_on_data_loss,
        "views": views,
        "compacted": [Compacted.parse(text) for text in compacted or ()],
    }
    if slo:
        given["slo"] = {queue: limit.total_seconds() for queue, limit in pairs("--slo", slo)}
    # What cannot be meant is said before Spark has been waited for.
    Pipeline(url, where, **given)
    waiting = _lag(where, url, tuple(queue or ()))
    _note_unknown(url, given.get("slo", {}))
    with showing(as_json, waiting if once else None) as shown:
        spark = spark_session(master)
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


def _note_unknown(url: str, limits: Iterable[str]) -> None:
    with closing(open_store(url)) as store:
        there = store.queues()
    for name in limits:
        if name not in there:
            note(f"--slo: there is no queue {name!r} yet; there are: {', '.join(there) or 'none'}")


def _lag(lake: Lake, url: str, queues: tuple[str, ...]) -> int:
    from localqueue.spark.pipeline.report.status import lag_of

    return lag_of(lake, url, queues)
