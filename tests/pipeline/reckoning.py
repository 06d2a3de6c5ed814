"""A lake against its store: every event once, and every table as the events have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from deltalake import DeltaTable

from localqueue import PersistentQueue
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import KINDS
from localqueue.stores.protocol import JournalEvent
from tests.pipeline.queue_model import STATES, expected

Row = dict[str, Any]
ALIVE = ("ready", "delayed", "held", "inflight")
COUNTS = ("events", "attempts", "failures", "retries", "died", "lives", "backlog", *STATES)


def rows_of(lake: Lake, table: str) -> list[Row]:
    """The rows as any reader of Delta Lake sees them, in the order of their journals."""
    location = lake.location / table
    delta = DeltaTable(location.uri, storage_options=dict(location.options))
    found: list[Row] = delta.to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["store"], row.get("seq", 0)))


def journal_of(queue: PersistentQueue[Any]) -> Iterator[JournalEvent]:
    """All events of the store that the queue is in."""
    after: str | None = None
    while some := queue.store.journal(after=after, limit=5000):
        yield from some
        after = some[-1].position


def reckon(lake: Lake, *queues: PersistentQueue[Any], missing: Sequence[int] = ()) -> None:
    """Nothing is missing and nothing is twice, in any table, and the store counts the same.

    The journal is there from its beginning. ``missing`` are events that are in quarantine instead.
    """
    events = rows_of(lake, "events")
    journal = [(e.position, e.queue, e.kind, e.n) for e in journal_of(queues[0])]
    sound = [event for event in journal if int(event[0][16:], 16) not in missing]
    assert [(e["position"], e["queue"], e["kind"], e["n"]) for e in events] == sound
    assert {row["seq"] for row in rows_of(lake, "quarantine")} == {*missing}
    _reckon_silver(lake, events)
    _reckon_errors(lake, events)
    if not missing:
        _reckon_minutes(lake, events, queues)


def _reckon_silver(lake: Lake, events: Sequence[Row]) -> None:
    ended = [e for e in events if e["from_state"] == "inflight" and e["to_state"] != "inflight"]
    assert _ends(rows_of(lake, "attempts"), "outcome") == _ends(ended, "kind")
    gone = [e for e in events if e["from_state"] in ALIVE and e["to_state"] in (None, "dead")]
    assert _ends(rows_of(lake, "messages"), "outcome") == _ends(gone, "kind")


def _ends(rows: Sequence[Row], outcome: str) -> list[tuple[Any, ...]]:
    return [(r["seq"], r["queue"], r["message_id"], r[outcome], r["error_text"]) for r in rows]


def _reckon_errors(lake: Lake, events: Sequence[Row]) -> None:
    erred = [e for e in events if e["fingerprint"] is not None]
    hours = Counter(
        (e["queue"], e["fingerprint"], e["at"].replace(minute=0, second=0, microsecond=0))
        for e in erred
    )
    rows = rows_of(lake, "errors")
    assert {(r["queue"], r["fingerprint"], r["hour"]): r["count"] for r in rows} == hours
    assert len(rows) == len(hours)
    assert sum(r["died"] for r in rows) == sum(e["to_state"] == "dead" for e in erred)


def _reckon_minutes(
    lake: Lake, events: Sequence[Row], queues: Sequence[PersistentQueue[Any]]
) -> None:
    rows, wanted = rows_of(lake, "minutes"), expected(events)
    found = {(row["store"], row["queue"], row["minute"]): row for row in rows}
    assert len(found) == len(rows)
    assert found.keys() == wanted.keys()
    for key, one in wanted.items():
        shown = {name: found[key][name] for name in (*COUNTS, *KINDS)}
        assert shown == {name: one.get(name, 0) for name in (*COUNTS, *KINDS)}, key
    for queue in queues:
        newest = max((r for r in rows if r["queue"] == queue.name), key=lambda r: r["minute"])
        counted = queue.stats()
        assert newest["backlog"] == counted.ready + counted.delayed
        assert (newest["inflight"], newest["dead"]) == (counted.inflight, counted.dead)
