"""What an event means for a message that is watched: which stage ends, and which one begins.

Nothing here reads or writes anything. Times are microseconds since 1970, of the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from localqueue.spark.pipeline.alerts.limits import RUNNING, WAITING, Limits

MICROS = 1_000_000
INFLIGHT = "inflight"
TAKEN = ("ready", "delayed")
"""The states in which a message waits for a worker, once it is due. One that is held behind others
of its ordering key waits for them."""


class Event(NamedTuple):
    """A row of the journal, as far as it matters here."""

    seq: int
    at: int
    message_id: str | None
    """None of a purge, which ends all messages of its queue."""
    from_state: str | None
    to_state: str | None
    attempt: int | None
    worker: str | None
    leased_at: int | None
    """Of events that end a lease, as ``waited``."""
    waited: float | None
    due_at: int | None
    """Of one that begins a delay: when that ends, if it could be found out."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A message that lives, and the stage that it is in."""

    state: str
    since: int | None
    """When the stage began; None where that is not known, or it is in none."""
    attempt: int
    """The delivery that it waits for, or that runs."""
    worker: str | None = None
    told: bool = False
    """Whether there was an alert about this stage."""
    told_waiting: bool = False
    """While it runs: whether there was one about the time before."""

    @property
    def stage(self) -> str | None:
        if self.state == INFLIGHT:
            return RUNNING
        return WAITING if self.state in TAKEN else None


@dataclass(frozen=True, slots=True)
class Alert:
    """A message that was in one stage for longer than it may be."""

    message_id: str
    stage: str
    attempt: int
    worker: str | None
    since: int
    limit: float
    seconds: float
    """How long it was, when that was noticed."""
    ended: bool
    """Whether the stage was over by then."""


def overdue_at(queue: str, watched: Watched, limits: Limits) -> int | None:
    """When an alert about the present stage is due; None when there is none to come."""
    limit = None if watched.stage is None else limits.of(queue, watched.stage)
    if limit is None or watched.since is None or watched.told:
        return None
    return watched.since + round(limit * MICROS)


def overdue(queue: str, message_id: str, watched: Watched, now: int, limits: Limits) -> Alert:
    """The alert about a stage that still goes on."""
    assert watched.stage is not None
    assert watched.since is not None
    limit = limits.of(queue, watched.stage) or 0.0
    seconds = max(limit, (now - watched.since) / MICROS)
    return _alert(message_id, watched.stage, watched, watched.since, limit, seconds, ended=False)


def follow(
    queue: str, known: Watched | None, event: Event, limits: Limits
) -> tuple[Watched | None, list[Alert]]:
    """What is known after the event, and what is to be said about the stage that it ends.

    None when the message does not live any more.
    """
    alerts = list(_about_the_end(queue, known, event, limits))
    if event.to_state in (None, "dead"):
        return None, alerts
    waited_too_long = any(alert.stage == WAITING for alert in alerts)
    return _begun(known, event, told_waiting=waited_too_long), alerts


def ended_by_purge(
    queue: str, message_id: str, known: Watched, at: int, limits: Limits
) -> list[Alert]:
    """What is to be said about a message that was purged."""
    gone = Event(0, at, message_id, known.state, None, None, None, None, None, None)
    return list(_about_the_present_stage(queue, known, gone, limits))


def _about_the_end(queue: str, known: Watched | None, event: Event, limits: Limits) -> list[Alert]:
    if event.from_state != INFLIGHT or event.leased_at is None:
        return [] if known is None else _about_the_present_stage(queue, known, event, limits)
    # The end of a lease tells all of it, also where its beginning was not seen.
    found = []
    lease = known
    if lease is None or lease.state != INFLIGHT:
        lease = Watched(INFLIGHT, event.leased_at, event.attempt or 1, event.worker)
    limit = limits.of(queue, WAITING)
    waited = event.waited or 0.0
    if limit is not None and waited > limit and not lease.told_waiting:
        since = event.leased_at - round(waited * MICROS)
        waiting = replace(lease, worker=None)
        found.append(_alert(event.message_id, WAITING, waiting, since, limit, waited, ended=True))
    limit = limits.of(queue, RUNNING)
    ran = (event.at - event.leased_at) / MICROS
    if limit is not None and ran > limit and not lease.told:
        found.append(_alert(event.message_id, RUNNING, lease, event.leased_at, limit, ran, True))
    return found


def _about_the_present_stage(
    queue: str, known: Watched, event: Event, limits: Limits
) -> list[Alert]:
    limit = None if known.stage is None else limits.of(queue, known.stage)
    if limit is None or known.since is None or known.told or known.stage is None:
        return []
    seconds = (event.at - known.since) / MICROS
    if seconds <= limit:
        return []
    return [_alert(event.message_id, known.stage, known, known.since, limit, seconds, ended=True)]


def _begun(known: Watched | None, event: Event, *, told_waiting: bool) -> Watched:
    assert event.to_state is not None
    if event.to_state == INFLIGHT:
        told = told_waiting or (known is not None and known.stage == WAITING and known.told)
        attempt = event.attempt or 1
        return Watched(INFLIGHT, event.at, attempt, event.worker, told_waiting=told)
    if event.attempt is not None:
        attempt = event.attempt + 1
    else:
        attempt = 1 if known is None else known.attempt
    since = {"ready": event.at, "delayed": event.due_at}.get(event.to_state)
    return Watched(event.to_state, since, attempt)


def _alert(
    message_id: str | None,
    stage: str,
    watched: Watched,
    since: int,
    limit: float,
    seconds: float,
    ended: bool,
) -> Alert:
    assert message_id is not None
    return Alert(
        message_id, stage, watched.attempt, watched.worker, since, limit, round(seconds, 3), ended
    )
