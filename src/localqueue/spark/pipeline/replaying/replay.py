"""A replay: what came to queues in a window of time, put back, each message once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from localqueue.errors import (
    ConfigurationError,
    InvalidArgument,
    JournalTrimmed,
    StoreMissing,
)
from localqueue.spark.pipeline.checks import check_name
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.replaying.archive import Archive, Arrived, Hole
from localqueue.spark.pipeline.replaying.putting import Counts, Putting
from localqueue.spark.pipeline.replaying.target import Target
from localqueue.spark.pipeline.replaying.window import Window, between
from localqueue.spark.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMEMBER = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a window, or with ``dry_run`` what is in it."""

    queues: dict[str, int]
    """How many messages came to each queue, and are in the lake with their payload."""
    without_payload: dict[str, int]
    """How many came to each queue without; they were left out."""
    behind: int
    """Events of these queues in the window that the lake does not have yet."""
    first_at: datetime | None
    last_at: datetime | None
    counts: Counts = field(default_factory=Counts)
    """What the puts did; all 0 with ``dry_run``."""
    seconds: float = 0.0

    @property
    def messages(self) -> int:
        return sum(self.queues.values())


def replay(
    store_url: str,
    lake: Lake | str | Path,
    *,
    since: datetime,
    until: datetime,
    queues: Sequence[str] = (),
    into: str | None = None,
    name: str = "default",
    stores: Sequence[str] = (),
    remember: timedelta = REMEMBER,
    missing_ok: bool = False,
    dry_run: bool = False,
    put_timeout: float = 300.0,
    spark: SparkSession | None = None,
    on_progress: Callable[[Counts], object] = lambda counts: None,
) -> Replayed:
    """Put what came to ``queues`` in the window back into them, or all of it ``into`` one queue.

    Messages come in their old order, with their value, headers, codec, and where the queue takes
    them priority and ordering key, and with a header ``localqueue-replay-of`` that has their old
    id. What a replay put is never replayed itself. Each is put once by all replays of a ``name``
    for ``remember`` from then on, however often, after a crash, at the same time, or with windows
    that overlap; also when it was worked on in between. Another name puts them again.

    Without ``queues`` those of all queues whose journal keeps payloads; what came by a topic goes
    to the topic. ``stores`` names others of the lake than the one they go to.

    Nothing is put when something is wrong with the window. InvalidArgument: it is reversed.
    ConfigurationError: nothing is in it, a queue is unknown or its journal keeps no payloads.
    JournalTrimmed: the lake has not all of it. With ``missing_ok`` what is there is put.
    """
    began = time.monotonic()
    window = Window(since, until)
    _check(name, remember)
    there = lake if isinstance(lake, Lake) else Lake(lake)
    events = _events(there)
    with Target(store_url) as target:
        chosen = target.stores(events, stores)
        target.check_queues(_named(queues, into, stores))
        archive = Archive(
            spark or _session(), there, events, window, chosen, in_turn=target.are_in_turn(chosen)
        )
        arrived = archive.arrived(queues)
        taken = _taken(arrived, queues, target)
        names = sorted({came.queue for came in taken})
        _check_messages(taken, queues, window, target)
        targets = [into] if into is not None else names
        target.check_queues(targets)
        if not missing_ok:
            _check_whole(taken, archive.holes(_of(names, arrived), names), window)
        counts = Counts()
        behind = target.behind(events, names, until)
        if not dry_run:
            orderings = {queue: target.ordering_of(queue) for queue in targets}
            putting = Putting(
                target.store, target.when, name, orderings, into, remember.total_seconds(),
                put_timeout,
            )  # fmt: skip
            rows = archive.messages(names).toLocalIterator(prefetchPartitions=True)
            putting.put_all(rows, counts, on_progress)
    return _answer(arrived, taken, behind, counts, time.monotonic() - began)


def check_target(
    store_url: str,
    lake: Lake,
    *,
    queues: Sequence[str] = (),
    into: str | None = None,
    name: str = "default",
    stores: Sequence[str] = (),
    remember: timedelta = REMEMBER,
) -> None:
    """Raise what ``replay`` would raise of these before it needs Spark."""
    _check(name, remember)
    events = _events(lake)
    with Target(store_url) as target:
        target.stores(events, stores)
        target.check_queues(_named(queues, into, stores))


def _named(queues: Sequence[str], into: str | None, stores: Sequence[str]) -> list[str]:
    """The queues that the store has to have: another one's need not be there."""
    ours = [] if stores and into is not None else list(queues)
    return ours if into is None else [*ours, into]


def _events(lake: Lake) -> Table:
    events = lake.table(EVENTS.name)
    if events is None:
        raise StoreMissing(f"{lake.location} has no table {EVENTS.name!r}; run the pipeline first")
    return events


def _taken(arrived: Sequence[Arrived], queues: Collection[str], target: Target) -> list[Arrived]:
    """The queues whose messages are put back."""
    came = [each for each in arrived if each.messages]
    if queues:
        return came
    # What a topic has handed out comes back by the topic, and only so.
    handed_out = target.subscribers_of({each.queue for each in came if each.with_payload})
    kept = [each for each in came if each.with_payload and each.queue not in handed_out]
    return kept or came


def _of(queues: Collection[str], arrived: Sequence[Arrived]) -> list[Arrived]:
    """Also where no message came: the queue may have been made there."""
    return [each for each in arrived if each.queue in queues]


def _answer(
    arrived: Sequence[Arrived],
    taken: Sequence[Arrived],
    behind: int,
    counts: Counts,
    seconds: float,
) -> Replayed:
    queues, without = dict[str, int](), dict[str, int]()
    for each in taken:
        queues[each.queue] = queues.get(each.queue, 0) + each.with_payload
    for each in arrived:
        if each.messages > each.with_payload:
            missing = each.messages - each.with_payload
            without[each.queue] = without.get(each.queue, 0) + missing
    return Replayed(
        queues,
        without,
        behind,
        min((each.first_at for each in taken if each.first_at), default=None),
        max((each.last_at for each in taken if each.last_at), default=None),
        counts,
        seconds,
    )


# --- what can be wrong ----------------------------------------------------------------------------
def _check(name: str, remember: timedelta) -> None:
    check_name("a replay", name)
    if remember <= timedelta(0):
        raise InvalidArgument("remember must be longer than nothing")


def _check_messages(
    taken: Sequence[Arrived], queues: Collection[str], window: Window, target: Target
) -> None:
    if not taken:
        asked = f"to {_listed(queues)} " if queues else ""
        raise ConfigurationError(
            f"no message came {asked}{window} (UTC), as far as the lake knows; nothing was put"
        )
    for each in taken:
        if each.with_payload:
            continue
        topic = target.topic_of(each.queue)
        advice = (
            f"the topic {topic!r} may have them: replay it into {each.queue!r}"
            if topic is not None
            else "journal_policy=Journal(payloads=True) keeps those that come from then on"
        )
        raise ConfigurationError(
            f"the journal of {each.queue!r} kept no payloads, so its {each.messages:,} messages of"
            f" the window cannot be put back; {advice}. Nothing was put"
        )


def _check_whole(taken: Iterable[Arrived], holes: Iterable[Hole], window: Window) -> None:
    for hole in holes:
        raise JournalTrimmed(
            f"the lake does not have all events of {hole.queue!r} in the window: some"
            f" {_between(hole, window)} were trimmed before it got them, or let go by its"
            " retention. With missing_ok the others are put; nothing was put"
        )
    for each in taken:
        if each.with_payload < each.messages:
            raise JournalTrimmed(
                f"the lake has no payload of {each.messages - each.with_payload:,} of the"
                f" {each.messages:,} messages of {each.queue!r} in the window: their journal did"
                " not keep payloads then, or they are no JSON. With missing_ok the others are put;"
                " nothing was put"
            )


def _between(hole: Hole, window: Window) -> str:
    began, ended = max(hole.began, window.since), min(hole.ended, window.until)
    return between(began, ended)


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))


def _session() -> SparkSession:
    from localqueue.spark.sessions.spark_session import session

    return session()
