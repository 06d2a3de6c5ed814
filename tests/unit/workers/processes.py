"""Workers in processes of their own, reduced to what they leave in the store and beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE = 20.0
"""How long a test waits for what must happen; only a failing one waits that long."""

HOLDER = """
import sys, os, time, ctypes
from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers.heartbeat import Heartbeat, Held
from localqueue.workers.liveness import Liveness

LEASE = float(sys.argv[2])
store = SQLiteQueueStore(sys.argv[1])
when = StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK))
liveness = Liveness(store.run_folder, slots=4)

def take(limit, prefetched=False):
    request = LeaseRequest(
        ("jobs",), limit, LEASE, worker="w", liveness=liveness.name, prefetched=prefetched
    )
    return store.lease(request, now=when.now)

def receipts(messages):
    return [Receipt(message.queue, message.id, message.token) for message in messages]

def say(*words):
    print(*words, flush=True)

"""


class Holder:
    """A program that holds leases; it goes on with what it was given after ``HOLDER``."""

    def __init__(self, path: Path, program: str, lease: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER + textwrap.dedent(program), str(path), str(lease)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def heard(self, *words: str) -> None:
        """Wait until the program says this."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.split() == list(words), line

    def tell(self) -> None:
        """Let it go on where it waits for its input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


@contextlib.contextmanager
def holder(path: Path, program: str, lease: float = 30.0) -> Iterator[Holder]:
    one = Holder(path, program, lease)
    try:
        yield one
    finally:
        with contextlib.suppress(ProcessLookupError):
            one.send(signal.SIGCONT)
        one.kill()
        for stream in (one.process.stdin, one.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    """The processes that this one has started and that have not ended."""
    told = subprocess.run(
        ["ps", "-o", "pid=,state=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    lines = [line.split() for line in told.stdout.splitlines()]
    return [int(child) for child, state in lines if not state.startswith("Z")]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    except FileNotFoundError:
        return False
