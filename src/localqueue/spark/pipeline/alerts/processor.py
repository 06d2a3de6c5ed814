"""The state of the query: which messages are watched, and when it is time to tell of one.

Messages are spread over buckets, and a bucket of a queue is one key of Spark's state. So what comes
and goes within a batch costs no state at all, and a purge, which names no messages, reaches all of
them. ``Processor`` runs on executors, in ``transformWithState``; all events of a bucket come to it
in one call per batch, timers after the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from localqueue.spark.pipeline.alerts.limits import Limits
from localqueue.spark.pipeline.alerts.stages import (
    MICROS,
    Alert,
    Event,
    Watched,
    ended_by_purge,
    follow,
    overdue,
    overdue_at,
)

BUCKETS = 16
"""Of a queue. A checkpoint depends on it."""
GRACE_MS = 1_000
"""An alert waits so long for the event that says that there is nothing to tell."""

KEY = ("queue", "bucket")
EVENT = (
    "seq long, at long, message_id string, from_state string, to_state string, attempt int,"
    " worker string, leased_at long, waited double, due_at long"
)
ALERT = (
    "queue string, message_id string, stage string, attempt int, worker string, since string,"
    " limit double, seconds double, ended boolean"
)
_WATCHED = (
    "state string, since long, attempt int, worker string, told boolean, told_waiting boolean,"
    " timer long"
)


class Processor(StatefulProcessor):
    """Tells of stages that last too long, each once; forgets a message when it ends.

    ``ahead_ms`` is how far the store's time is ahead of the clock that Spark goes by.
    """

    _messages: MapState
    """By message id."""
    _timers: MapState
    """By the time of a timer: the ids of those that it is for, one after the other."""

    def __init__(self, limits: Limits, ahead_ms: int = 0) -> None:
        self._limits = limits
        self._ahead_ms = ahead_ms
        self._handle: StatefulProcessorHandle | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._messages = handle.getMapState("messages", "message_id string", _WATCHED)
        self._timers = handle.getMapState("timers", "timer long", "message_ids string")

    def handleInitialState(  # noqa: N802
        self,
        key: Any,
        initialState: Any,  # noqa: N803
        timerValues: TimerValues,  # noqa: N803
    ) -> None:
        """Before the first batch: the messages that were there."""
        bucket = self._bucket(key)
        for row in initialState["messages"]:
            bucket.put(row["message_id"], Watched(row["state"], row["since"], row["attempt"]))
        bucket.write()

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        bucket = self._bucket(key)
        alerts: list[Alert] = []
        events = [Event(*(row[name] for name in Event._fields)) for row in rows]
        for event in sorted(events, key=attrgetter("seq")):
            alerts += bucket.follow(event)
        bucket.write()
        return map(bucket.shown, alerts)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs() + self._ahead_ms
        bucket = self._bucket(key)
        alerts = list(bucket.expire(expiredTimerInfo.getExpiryTimeInMs(), now * 1000))
        bucket.write()
        return map(bucket.shown, alerts)

    def close(self) -> None:
        pass

    def _bucket(self, key: Any) -> _Bucket:
        assert self._handle is not None
        return _Bucket(
            key[0], self._limits, self._ahead_ms, self._handle, self._messages, self._timers
        )


class _Bucket:
    """The messages of one key, read when they are needed and written together at the end."""

    def __init__(
        self,
        queue: str,
        limits: Limits,
        ahead_ms: int,
        handle: StatefulProcessorHandle,
        messages: MapState,
        timers: MapState,
    ) -> None:
        self._queue, self._limits, self._ahead_ms = queue, limits, ahead_ms
        self._handle, self._messages, self._timers = handle, messages, timers
        self._before: dict[str, tuple[Any, ...] | None] = {}
        """As the state has them; None for those that it does not have."""
        self._now: dict[str, Watched | None] = {}
        self._fired: int | None = None

    def put(self, message_id: str, watched: Watched) -> None:
        self._before[message_id] = None
        self._now[message_id] = watched

    def follow(self, event: Event) -> list[Alert]:
        if event.message_id is None:
            return list(self._purge(event))
        known = self._known(event)
        after, alerts = follow(self._queue, known, event, self._limits)
        self._now[event.message_id] = after
        return alerts

    def expire(self, timer: int, now: int) -> Iterator[Alert]:
        """Tell of those that this timer is for, and are still where they were."""
        self._fired = timer
        for message_id in self._ids(timer):
            watched = self._read(message_id)
            # Limits may be others since the timer was set: then there is another timer, or none.
            at = None if watched is None else overdue_at(self._queue, watched, self._limits)
            if watched is not None and at is not None and at <= now:
                yield overdue(self._queue, message_id, watched, now, self._limits)
                self._now[message_id] = replace(watched, told=True)

    def write(self) -> None:
        """Bring the state to what is known now; what is as it was is not written."""
        moves: dict[int, tuple[set[str], set[str]]] = {}
        for message_id, watched in self._now.items():
            before = self._before[message_id]
            after = None if watched is None else (*astuple(watched), self._timer_of(watched))
            if before == after:
                continue
            if after is None:
                self._messages.removeKey((message_id,))
            else:
                self._messages.updateValue((message_id,), after)
            _move(moves, message_id, before, after)
        if self._fired is not None:
            # Spark lets go of the timer itself.
            moves.pop(self._fired, None)
            self._timers.removeKey((self._fired,))
        for timer, (gone, come) in moves.items():
            self._set_timer(timer, gone, come)

    def shown(self, alert: Alert) -> Row:
        since = datetime.fromtimestamp(alert.since / MICROS, UTC).isoformat()
        return Row(
            queue=self._queue, message_id=alert.message_id, stage=alert.stage,
            attempt=alert.attempt, worker=alert.worker, since=since, limit=alert.limit,
            seconds=alert.seconds, ended=alert.ended,
        )  # fmt: skip

    # --- messages ---------------------------------------------------------------------------------
    def _known(self, event: Event) -> Watched | None:
        message_id = event.message_id
        assert message_id is not None
        if message_id in self._now:
            return self._now[message_id]
        if event.from_state is None:
            # It begins here, so nothing can be known of it.
            self._before[message_id] = None
            return None
        return self._read(message_id)

    def _read(self, message_id: str) -> Watched | None:
        if message_id not in self._now:
            self._remember(message_id, self._messages.getValue((message_id,)))
        return self._now[message_id]

    def _remember(self, message_id: str, found: Iterable[Any] | None) -> None:
        self._before[message_id] = None if found is None else tuple(found)
        self._now[message_id] = None if found is None else Watched(*tuple(found)[:-1])

    def _purge(self, event: Event) -> Iterator[Alert]:
        for (message_id,), found in list(self._messages.iterator()):
            if message_id not in self._now:
                self._remember(message_id, found)
        for message_id, watched in self._now.items():
            if watched is not None:
                yield from ended_by_purge(self._queue, message_id, watched, event.at, self._limits)
                self._now[message_id] = None

    # --- timers -----------------------------------------------------------------------------------
    def _timer_of(self, watched: Watched) -> int:
        """When Spark is to ask again, in its own milliseconds; 0 for never.

        In whole seconds, so that few timers serve many messages.
        """
        at = overdue_at(self._queue, watched, self._limits)
        return 0 if at is None else -(-at // MICROS) * 1000 + GRACE_MS - self._ahead_ms

    def _set_timer(self, timer: int, gone: set[str], come: set[str]) -> None:
        there = self._ids(timer)
        left = [message_id for message_id in there if message_id not in gone] + sorted(come)
        if not left:
            self._timers.removeKey((timer,))
            self._handle.deleteTimer(timer)
            return
        self._timers.updateValue((timer,), (" ".join(left),))
        if not there:
            self._handle.registerTimer(timer)

    def _ids(self, timer: int) -> list[str]:
        found = self._timers.getValue((timer,))
        return [] if found is None else str(found[0]).split()


def _move(
    moves: dict[int, tuple[set[str], set[str]]],
    message_id: str,
    before: tuple[Any, ...] | None,
    after: tuple[Any, ...] | None,
) -> None:
    """Note from which timer a message goes to which one."""
    old, new = (0 if row is None else row[-1] for row in (before, after))
    if old == new:
        return
    if old:
        moves.setdefault(old, (set(), set()))[0].add(message_id)
    if new:
        moves.setdefault(new, (set(), set()))[1].add(message_id)
