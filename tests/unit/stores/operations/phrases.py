"""Short ways to say what a test of the operations does."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put, StoredMessage
from localqueue.stores.records import RecordChange
from localqueue.stores.sqlite.store import SQLiteQueueStore

START = 1_700_000_000.0
LATER = START + 11 * 366 * 86_400
PAGE = 4096
BOOM = {"type": "ValueError", "module": "builtins", "message": "boom"}


def receipt(message: StoredMessage) -> Receipt:
    return Receipt(message.queue, message.id, message.token)


def fill(store: SQLiteQueueStore, n: int, queue: str = "jobs") -> list[str]:
    """So many messages; their ids."""
    puts = [Put(queue, b'"%d %s"' % (number, b"." * 200)) for number in range(n)]
    return [answer.message.id for answer in store.enqueue_many(puts, now=START)]


def of_everything(path: Path) -> None:
    """A file with messages in every state, topics read in part, keys, records and a reader."""
    with SQLiteQueueStore(path, durability="relaxed") as store:
        store.configure("keys", {"ordering": "per-key"}, now=START)
        store.configure("log", {"fanout": "cursor", "journal_payloads": True}, now=START)
        store.configure("copies", {"fanout": "copy"}, now=START)
        for topic in ("log", "copies"):
            for name in ("a", "b"):
                store.subscribe(topic, name, now=START)
        for number in range(24):
            text = b'"%d"' % number
            store.enqueue_many(
                [
                    Put("jobs", text, dedupe_key=f"k{number}"),
                    Put("jobs", text * 3_000, headers=b'{"large":"yes"}'),
                    Put("jobs", text, delay=60.0 if number % 2 else 0.0),
                    Put("keys", text, ordering_key=f"key {number % 4}"),
                    Put("log", text, dedupe_key=f"p{number}"),
                    Put("copies", text),
                ],
                now=START + number,
            )
        leased = store.lease(
            LeaseRequest(("jobs", "keys", "log.a"), limit=30, worker="anna", liveness="l"),
            now=START + 30,
        )
        store.ack_many([receipt(message) for message in leased[:5]], now=START + 31)
        failed = [receipt(message) for message in leased[5:10]]
        store.release_many(failed, error=BOOM, now=START + 32)
        store.dead_letter_many([receipt(message) for message in leased[10:15]], now=START + 33)
        from_the_log = store.lease(LeaseRequest(("log.a",), limit=4), now=START + 34)
        store.ack_many([receipt(message) for message in from_the_log[:2]], now=START + 35)
        unread = store.peek("log.b", 3, now=START + 36)[2]
        store.cancel("log.b", unread.id, now=START + 36)
        store.change_records(
            [RecordChange("result", "a", b"1"), RecordChange("result", "b", b"2")], now=START
        )
        store.register_reader("billing", now=START + 37)
        store.record_worker_heartbeat("jobs", "anna", now=START + 37)


def everything(store: SQLiteQueueStore) -> dict[str, dict[str, tuple[bytes, bytes | None]]]:
    """Value and headers of all messages by queue and id, taken out; dead letters too."""
    found: dict[str, dict[str, tuple[bytes, bytes | None]]] = {}
    for queue in store.queues():
        dead = [message.id for message in store.dead_letters(queue)]
        store.requeue_dead_many(queue, dead, now=LATER)
        while taken := store.lease(LeaseRequest((queue,), limit=100), now=LATER + 1):
            for message in taken:
                found.setdefault(queue, {})[message.id] = (message.body, message.headers)
            store.ack_many([receipt(message) for message in taken], now=LATER + 1)
    return found


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """SQLite itself, which lets one write what no verb would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = on")
        yield db


def value(path: Path, statement: str, *parameters: Any) -> Any:
    with raw(path) as db:
        return db.execute(statement, parameters).fetchone()[0]


def kill_while_noting(path: Path, program: str = "") -> list[str]:
    """A process that puts, posts, notes six more messages and what the program says, and is killed.

    The ids of the messages, the first of which was posted.
    """
    script = f"""
import os, signal, sys
from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.store import SQLiteQueueStore
book.WARM_UP = 0
START = {START}
store = SQLiteQueueStore(sys.argv[1])
for number in range(7):
    (stored,) = store.enqueue_many([Put("jobs", b'"noted %d"' % number)], now=START)
    print(stored.message.id, flush=True)
{textwrap.dedent(program)}
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.split()


def on_a_small_disk(folder: Path, size: str, program: str, *arguments: object) -> str:
    """Run a program in a mount namespace of its own, where the folder is a disk of that size."""
    mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mount, str(folder)]
    try:
        possible = subprocess.run([*command, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if possible.returncode:
        pytest.skip("nothing may be mounted here")
    script = textwrap.dedent(program)
    done = subprocess.run(
        [*command, sys.executable, "-c", script, str(folder), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
