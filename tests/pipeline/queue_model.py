"""A queue in a few lines: it writes a journal like a store's, and what gold should say of it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from tests.pipeline.journals import START, STORE, event

STATES = ("ready", "delayed", "held", "inflight", "dead")
Row = dict[str, Any]


class Journal:
    """The events of some queues of one store, in order."""

    def __init__(self, store: str = STORE, seed: int = 7) -> None:
        self.rows: list[Row] = []
        self.levels: dict[str, Counter[str]] = {}
        self._store, self._random = store, random.Random(seed)
        self._held: dict[str, list[tuple[str, datetime, datetime]]] = {}
        self.now = START

    def add(self, kind: str, queue: str, **columns: Any) -> Row:
        row = event(len(self.rows) + 1, kind, store=self._store, queue=queue, at=self.now)
        row |= {"to_state": None} | columns
        self.rows.append(row)
        level = self.levels.setdefault(queue, Counter())
        level[row["from_state"]] -= row["n"]
        level[row["to_state"]] += row["n"]
        return row

    def make(self, queue: str) -> None:
        self.add("configured", queue, message_id=None, detail="{}")

    def count(self, queue: str) -> None:
        """What a store tells when it folds its journal."""
        told = {state: self.levels[queue][state] for state in STATES}
        self.add("counted", queue, message_id=None, by="sweep", detail=json.dumps(told))

    def work(self, queue: str, steps: int, every: float = 1.0) -> None:
        """Put, lease and end messages at random; so many events, one after so many seconds."""
        for _ in range(steps):
            self.now += timedelta(seconds=every)
            held = self._held.setdefault(queue, [])
            choice = self._random.random()
            if held and choice < 0.4:
                self._end(queue, *held.pop(self._random.randrange(len(held))))
            elif self.levels[queue]["ready"] > 0 and choice < 0.7:
                put_at = self.now - timedelta(seconds=self._random.randrange(1, 9))
                held.append((f"w{self._random.randrange(3)}", put_at, self.now))
                self.add("leased", queue, from_state="ready", to_state="inflight", attempt=1)
            else:
                self.add("enqueued", queue, to_state="ready")

    def _end(self, queue: str, worker: str, put_at: datetime, leased_at: datetime) -> None:
        kind, to, error = self._random.choice(
            [
                ("acked", None, None),
                ("acked", None, None),
                ("released", "delayed", "ValueError"),
                ("released", "ready", None),
                ("lease_expired", "ready", None),
                ("dead_lettered", "dead", "KeyError"),
            ]
        )
        self.add(
            kind, queue, from_state="inflight", to_state=to, attempt=1, worker=worker,
            enqueued_at=put_at, leased_at=leased_at, error_type=error,
            error_text=error and f"{error} {len(self.rows)}", fingerprint=error and error.lower(),
            waited=(leased_at - put_at).total_seconds(),
            ran=(self.now - leased_at).total_seconds(),
        )  # fmt: skip


def minute_of(row: Row) -> datetime:
    at: datetime = row["at"]
    return at.replace(second=0, microsecond=0)


def expected(rows: Iterable[Row]) -> dict[tuple[str, str, datetime], Row]:
    """What ``minutes`` says of a journal that is there from its beginning, by its keys."""
    found: dict[tuple[str, str, datetime], Row] = {}
    levels: dict[tuple[str, str], Counter[str]] = {}
    for row in sorted(rows, key=lambda row: (row["at"], row["seq"])):
        place = row["position"][:16], row["queue"]
        level = levels.setdefault(place, Counter())
        level[row["from_state"]] -= row["n"]
        level[row["to_state"]] += row["n"]
        one = found.setdefault((*place, minute_of(row)), _nothing())
        _add(one, row)
        one |= {state: level[state] for state in STATES}
        one["backlog"] = level["ready"] + level["delayed"] + level["held"]
    return found


def _nothing() -> Row:
    counts = ("events", "died", "attempts", "failures", "retries", "lives")
    return dict.fromkeys(counts, 0) | {"waits": [], "runs": [], "names": set()}


def _add(one: Row, row: Row) -> None:
    one["events"] += 1
    one[row["kind"]] = one.get(row["kind"], 0) + row["n"]
    one["died"] += row["to_state"] == "dead"
    if row["from_state"] != "inflight" or row["to_state"] == "inflight":
        return
    failed = row["error_type"] is not None or row["kind"] in ("lease_expired", "dead_lettered")
    one["attempts"] += 1
    one["failures"] += failed
    one["retries"] += failed and row["to_state"] in ("ready", "delayed", "held")
    one["lives"] += row["to_state"] in (None, "dead")
    one["waits"].append(row["waited"])
    one["runs"].append(row["ran"])
    one["names"].add(row["worker"])
