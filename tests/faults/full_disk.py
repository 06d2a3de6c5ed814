"""A program for a small real file system: fill it, drain it, and tell in JSON what happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty
from typing import Any

from localqueue.errors import LocalQueueError, StoreFull
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.ballast import Ballast
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.store import SQLiteQueueStore

SIZE = "40m"
"""Of the file system: more than twice the ballast."""
PATIENCE = 5.0
Queue = PersistentQueue[Any]


def open_queue(folder: Path) -> Queue:
    return PersistentQueue("jobs", store_path=folder / "queue.sqlite3")


def fill_by_puts(folder: Path) -> dict[str, Any]:
    """The backlog itself fills the disk, and consumers take it out again."""
    queue = open_queue(folder)
    stored = 0
    try:
        while True:
            queue.put(["x" * 100_000, stored])
            stored += 1
    except LocalQueueError as error:
        refused = [type(error).__name__]
    refused += [_try_put(queue), in_another_process("put", folder)["put"]]
    counted = queue.stats().total
    drained = in_another_process("drain", folder)["drained"]
    return {
        "refused": refused,
        "stored": stored,
        "counted": counted,
        "drained": [number for _, number in drained],
        "resumed": _puts_again(queue),
    }


def fill_by_others(folder: Path) -> dict[str, Any]:
    """Somebody else fills the disk, and makes room again when the queue has been drained."""
    queue = open_queue(folder)
    queue.put_many(range(500))
    foreign = take_the_rest(folder)
    refused = [_try_put(queue), in_another_process("put", folder)["put"]]
    drained = in_another_process("drain", folder)["drained"]
    foreign.unlink()
    return {"refused": refused, "drained": drained, "resumed": _puts_again(queue)}


def open_when_full(folder: Path) -> dict[str, Any]:
    """The disk is full before anybody opens the file."""
    queue = open_queue(folder)
    queue.put("stored")
    queue.close()
    foreign = take_the_rest(folder)
    refused = in_another_process("put", folder)["put"]
    foreign.unlink()
    return {"refused": refused, "drained": in_another_process("drain", folder)["drained"]}


def post_when_full(folder: Path) -> dict[str, Any]:
    """What is noted has to be posted when somebody else has filled the disk."""
    book.WARM_UP = 0
    queue = open_queue(folder)
    for number in range(500):
        queue.put(number)
    assert isinstance(queue.store, SQLiteQueueStore)
    noted = queue.store.diagnostics()["file"]["daybook_events"]
    foreign = take_the_rest(folder)
    refused = [in_another_process("put", folder)["put"], _try_put(queue)]
    counted = queue.stats().total
    drained = in_another_process("drain", folder)["drained"]
    foreign.unlink()
    return {
        "noted": noted,
        "refused": refused,
        "counted": counted,
        "drained": drained,
        "resumed": _puts_again(queue),
    }


def no_room_for_a_book(folder: Path) -> dict[str, Any]:
    """There is room for messages, but not for a daybook beside them."""
    book.WARM_UP = 0
    queue = open_queue(folder)
    queue.put(0)
    foreign = take_the_rest(folder)
    os.truncate(foreign, foreign.stat().st_size - 900_000)
    for number in range(1, 20):
        queue.put(number)
    found = Companions(folder / "queue.sqlite3").daybook.exists()
    drained = in_another_process("drain", folder)["drained"]
    return {"found": found, "drained": drained, "resumed": _puts_again(queue)}


def take_the_rest(folder: Path) -> Path:
    path = folder / "foreign"
    with path.open("wb", buffering=0) as file:
        size = 1_000_000
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    return path


def put(folder: Path) -> dict[str, Any]:
    queue = open_queue(folder)
    return {"put": _try_put(queue)}


def drain(folder: Path) -> dict[str, Any]:
    queue = open_queue(folder)
    values = []
    try:
        while True:
            message = queue.get_message(block=False)
            assert queue.ack(message)
            value = message.value
            values.append([None, value[1]] if isinstance(value, list) else value)
    except Empty:
        queue.close()
        return {"drained": values}


def in_another_process(what: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.faults.full_disk", what, str(folder)],
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _try_put(queue: Queue) -> str:
    try:
        queue.put("one more")
    except LocalQueueError as error:
        return type(error).__name__
    return "stored"


def _puts_again(queue: Queue) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            queue.put("again")
        except StoreFull:
            time.sleep(0.1)
            continue
        return bool(queue.get(block=False) == "again")
    return False


def main(what: str, folder: str) -> None:
    if os.environ.get("PLANTED_DEFECT") == "NoBallast":
        Ballast.make = lambda self: True  # type: ignore[method-assign]
    print(json.dumps(globals()[what](Path(folder))))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
