"""Lakes that no pipeline has filled: their rows are made up here and committed directly."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.errors import ERRORS
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.parquet_files import write_table
from localqueue.spark.pipeline.places import Feed, Place

STORE = "0123456789abcdef"
HERE = Place(STORE, "0")
START = datetime(2026, 1, 30, 8, tzinfo=UTC)


def fill(lake: Lake, definition: Definition, rows: Iterable[dict[str, Any]]) -> None:
    """Add rows to a table, which is made if there is none; what a row does not name is null."""
    table = lake.create(definition)
    file = write_table(
        table.location,
        pa.Table.from_pylist(list(rows), schema=definition.schema),
        definition.statistics,
    )
    assert table.append([file], Feed(), {HERE: table.position(Feed(), HERE) + 1})


def sketch(durations: Sequence[float]) -> bytes | None:
    """A KLL sketch of few durations, as Spark writes it: all of them are kept."""
    if not durations:
        return None
    micros = sorted(round(each * 1e6) for each in durations)
    if len(micros) == 1:
        return struct.pack("<BBBBHBBq", 2, 2, 15, 4, 200, 8, 0, micros[0])
    head = struct.pack("<BBBBHBBqHBB", 5, 1, 15, 2, 200, 8, 0, len(micros), 200, 1, 0)
    kept = struct.pack(f"<i{len(micros)}q", 200 - len(micros), *micros)
    return head + kept[:4] + struct.pack("<qq", micros[0], micros[-1]) + kept[4:]


def minute(
    number: int, queue: str = "jobs", *, waits: Sequence[float] = (), **columns: Any
) -> dict[str, Any]:
    """The row of a minute; every message that waited was finished after running half as long."""
    counts = dict.fromkeys((field.name for field in MINUTES.schema if field.type == pa.int64()), 0)
    n, runs = len(waits), [each / 2 for each in waits]
    row: dict[str, Any] = {
        **counts,
        "store": STORE,
        "queue": queue,
        "minute": START + timedelta(minutes=number),
        "until": START + timedelta(minutes=number),
        **dict.fromkeys(("enqueued", "leased", "acked", "attempts", "lives"), n),
        "busy": sum(runs),
        "workers": 1,
        "wait_sketch": sketch(waits),
        "run_sketch": sketch(runs),
    }
    return row | columns


def error(number: int, text: str, queue: str = "jobs", *, count: int = 1) -> dict[str, Any]:
    """The row of an error in an hour, counted from the beginning."""
    at = START + timedelta(hours=number)
    return {
        "store": STORE,
        "queue": queue,
        "hour": at,
        "fingerprint": f"{hash(text) & 0xFFFF:x}",
        "error_type": "ValueError",
        "error_text": text,
        "count": count,
        "first_at": at + timedelta(minutes=1),
        "last_at": at + timedelta(minutes=50),
        "message_id": f"{STORE}{number:016x}",
    }


def life(seq: int, at: float, *, waited: float, ran: float, ok: bool = True, queue: str = "jobs",
         worker: str = "w1") -> Iterator[dict[str, Any]]:  # fmt: skip
    """The three events of a message: put so many seconds after the start, leased and ended."""
    put, leased = START + timedelta(seconds=at), START + timedelta(seconds=at + waited)
    ended = leased + timedelta(seconds=ran)
    known = {"store": STORE, "shard": "0", "queue": queue, "n": 1, "by": "worker"}
    known["message_id"] = f"{STORE}{seq:016x}"
    yield known | {"seq": seq, "at": put, "kind": "enqueued", "to_state": "ready"}
    lease = {"worker": worker, "attempt": 1}
    yield known | lease | {"seq": seq + 1, "at": leased, "kind": "leased",
                           "from_state": "ready", "to_state": "inflight"}  # fmt: skip
    yield (
        known
        | lease
        | {
            "seq": seq + 2,
            "at": ended,
            "from_state": "inflight",
            "kind": "acked" if ok else "dead_lettered",
            "to_state": None if ok else "dead",
            "error_type": None if ok else "ValueError",
            "enqueued_at": put,
            "leased_at": leased,
            "waited": waited,
            "ran": ran,
        }
    )


def busy_days(lake: Lake, *, hours: int = 30, queues: Sequence[str] = ("orders", "mails")) -> None:
    """A day and more with rush hours, an outage, retries, dead letters and a backlog."""
    chance = random.Random(7)
    rows, errors = [], []
    for place, queue in enumerate(queues):
        backlog = 0.0
        for number in range(hours * 60):
            day = 0.5 + 0.5 * math.sin((number / 60 - 4) / 24 * 2 * math.pi)
            outage = 15 * 60 < number < 16 * 60 + 30 and place == 0
            put = int((4 + 40 * day * chance.uniform(0.7, 1.2)) / (place + 1))
            done = int(min(backlog + put, 6 if outage else 45))
            backlog += put - done
            waits = [chance.lognormvariate(-2 + backlog / 250, 0.9) for _ in range(done)]
            failed = sum(chance.random() < (0.4 if outage else 0.03) for _ in waits)
            died = failed // 5
            rows.append(
                minute(number, queue, waits=waits)
                | {
                    "enqueued": put,
                    "acked": done - failed,
                    "failures": failed,
                    "retries": failed - died,
                    "died": died,
                    "lives": done - failed + died,
                    "busy": sum(waits) / 2 + done * 0.9,
                    "workers": 2 if outage else 3,
                    "backlog": int(backlog),
                }
            )
        for hour in range(hours):
            errors.append(error(hour, "the payment service does not answer", queue, count=9))
            errors.append(error(hour, f"no customer {place}", queue, count=3 + hour % 3))
    fill(lake, MINUTES, rows)
    fill(lake, ERRORS, errors)


def short_run(lake: Lake, *, messages: int = 400, length: float = 40.0) -> None:
    """Less than a minute, with the events of it; its minute is there as well."""
    chance = random.Random(3)
    events = [
        event
        for n in range(messages)
        for event in life(
            3 * n,
            n / messages * length,
            waited=chance.lognormvariate(-1.5, 1),
            ran=chance.lognormvariate(-2.5, 0.6),
            ok=n % 25 > 0,
            queue=("orders", "mails")[n % 2],
            worker=f"w{n % 3}",
        )
    ]
    fill(lake, EVENTS, sorted(events, key=lambda event: event["at"]))
    fill(lake, MINUTES, [minute(0, queue, waits=[0.1]) for queue in ("orders", "mails")])
    fill(lake, ERRORS, [error(0, "no such customer", count=messages // 25)])
