"""``localqueue pipeline replay``: what came in a window of time, put back into a queue."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localqueue.cli.arguments import moment, span
from localqueue.cli.arguments import store_url as store_url_of
from localqueue.cli.output import needs_spark, note, say, show_json
from localqueue.cli.pipeline.arguments import (
    JsonOption,
    LakeArgument,
    MasterOption,
    StoreArgument,
)
from localqueue.cli.pipeline.lakes import spark_session

if TYPE_CHECKING:
    from localqueue.spark.pipeline.replaying.replay import Replayed


def replay(
    store_url: StoreArgument,
    lake: LakeArgument,
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="What came at this time or later: 2026-01-31T08:00, or 24h for a day ago.",
        ),
    ],
    until: Annotated[
        str, typer.Option("--to", metavar="TIME", help="What came before this time; now: 0s.")
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE",
            help="What came to this queue; several times for several. All that have payloads"
            " unless given.",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="QUEUE", help="Put it here, and not where it came from."),
    ] = None,
    name: Annotated[
        str,
        typer.Option(help="Each message is put once by all replays of a name; another puts again."),
    ] = "default",
    remember: Annotated[
        str, typer.Option(metavar="TIME", help="How long it is known that a message was put.")
    ] = "30d",
    of_store: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIGITS",
            help="What came to this store of the lake, as its column store has it; the store that"
            " it is put into unless given.",
        ),
    ] = None,
    missing_ok: Annotated[
        bool,
        typer.Option("--missing-ok", help="Put what is there when the lake has not all of it."),
    ] = False,
    put_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for room in a full queue.")
    ] = "5m",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many there are, and put nothing.")
    ] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put the archived messages of a window of time back into a queue, each of them once.

    Run it again as often as you like, also after a crash or twice at a time: a message that was
    put already is left out, even if it was worked on since. They come in their old order, as
    they were, with the header localqueue-replay-of. Their queues need a journal that keeps
    payloads.
    """
    with needs_spark():
        from localqueue.spark.pipeline.lake import Lake
        from localqueue.spark.pipeline.replaying import replay as replaying
        from localqueue.spark.pipeline.replaying.window import Window

    begins, ends = moment("--from", since), moment("--to", until)
    assert begins is not None
    assert ends is not None
    given: dict[str, Any] = {
        "since": begins,
        "until": ends,
        "queues": queue or (),
        "into": into,
        "name": name,
        "stores": of_store or (),
        "remember": span("--remember", remember),
        "missing_ok": missing_ok,
        "dry_run": dry_run,
        "put_timeout": span("--put-timeout", put_timeout).total_seconds(),
    }
    # What cannot be meant is said before Spark has been waited for.
    Window(begins, ends)
    there, url = Lake(lake), store_url_of(store_url)
    replaying.check_target(url, there, **_named(given))
    done = replaying.replay(url, there, spark=spark_session(master), **given)
    _show(done, as_json, dry_run)


def _named(given: dict[str, Any]) -> dict[str, Any]:
    return {key: given[key] for key in ("queues", "into", "name", "stores", "remember")}


def _show(done: Replayed, as_json: bool, dry_run: bool) -> None:
    if as_json:
        shown = asdict(done)
        show_json({"dry_run": dry_run, "messages": done.messages} | shown.pop("counts") | shown)
        return
    came = ", ".join(f"{queue} {n:,}" for queue, n in sorted(done.queues.items()))
    say(f"{_messages(done.messages)} in the window: {came}")
    if not dry_run:
        counts = done.counts
        rest = [(counts.already, "were put before"), (counts.dropped, "let go by a full queue")]
        parts = [f"{counts.put:,} put", *(f"{n:,} {what}" for n, what in rest if n)]
        say(f"{', '.join(parts)}, in {done.seconds:.1f} s")
    for queue, n in sorted(done.without_payload.items()):
        note(f"{_messages(n)} of {queue} left out: the lake has no payload of them")
    if done.behind:
        note(
            f"{done.behind:,} events of the window are not in the lake yet; if they are of others"
            " than what replays put, run the pipeline, then replay again"
        )


def _messages(n: int) -> str:
    return f"{n:,} message" + ("" if n == 1 else "s")
