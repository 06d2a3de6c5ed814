"""``localqueue pipeline alerts``: tell of messages that are stuck."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localqueue.cli.arguments import pairs
from localqueue.cli.arguments import store_url as store_url_of
from localqueue.cli.output import needs_spark, note, say, show_json
from localqueue.cli.pipeline.arguments import JsonOption, MasterOption, StoreArgument
from localqueue.cli.pipeline.lakes import spark_session

if TYPE_CHECKING:
    from localqueue.spark.pipeline.alerts import AlertBatch, StuckAlerts


def alerts(
    store_url: StoreArgument,
    checkpoint: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where the query keeps what it knows; its own."),
    ],
    to: Annotated[
        str, typer.Option(metavar="QUEUE", help="The queue of the same store that alerts go to.")
    ] = "alerts",
    waiting: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE=TIME", help="How long messages of a queue may wait: orders=30s."
        ),
    ] = None,
    running: Annotated[
        list[str] | None,
        typer.Option(metavar="QUEUE=TIME", help="How long they may run: orders=5m."),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once/--continuous", help="Look at what there is and end, or go on."),
    ] = False,
    every: Annotated[float, typer.Option(min=0.0, help="Seconds between two looks.")] = 5.0,
    name: Annotated[str, typer.Option(help="Names the consumer group alerts:NAME.")] = "default",
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put an alert into a queue for each message that waits or runs for too long.

    Goes on until Ctrl-C. However it ends, the next one goes on, and tells of nothing twice.
    """
    with needs_spark():
        from localqueue.spark.pipeline.alerts import StuckAlerts

    if not waiting and not running:
        raise typer.BadParameter(
            "nothing is to be watched; say how long messages may wait or run, such as"
            " --waiting orders=30s or --running orders=5m"
        )
    url = store_url_of(store_url)
    given: dict[str, Any] = {
        "checkpoint": checkpoint,
        "waiting": _seconds("--waiting", waiting),
        "running": _seconds("--running", running),
        "name": name,
    }
    # What cannot be meant is said before Spark has been waited for.
    StuckAlerts(url, to, **given)
    stuck = StuckAlerts(url, to, spark=spark_session(master), **given)

    def tell(batch: AlertBatch) -> None:
        if as_json:
            show_json({"batch": batch.batch, "alerts": batch.alerts})
        elif batch.alerts:
            say(f"batch {batch.batch}: {_alerts(batch.alerts)}")

    with _ended_by_ctrl_c(stuck) as asked:
        put = stuck.run(once=once, every=every, on_batch=tell)
    if as_json:
        show_json({"done": True, "alerts": put})
    else:
        say(f"{_alerts(put)} put into {to}")
    if asked.is_set():
        raise typer.Exit(130)


@contextmanager
def _ended_by_ctrl_c(stuck: StuckAlerts) -> Iterator[threading.Event]:
    """Inside, Ctrl-C and SIGTERM stop the query, and a second one ends at once."""
    asked = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        note("ending; Ctrl-C again ends at once")
        # Not here: the query may wait for a call into this very thread.
        threading.Thread(target=stuck.stop, name="ending", daemon=True).start()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _seconds(option: str, given: list[str] | None) -> dict[str, float]:
    return {queue: limit.total_seconds() for queue, limit in pairs(option, given)}


def _alerts(n: int) -> str:
    return f"{n:,} alert" + ("" if n == 1 else "s")
