"""Waiting in programs that fork, and in programs that end with their pipe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.stores.phrases import run_program

START = """
import os, signal, sys, threading
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore

store = SQLiteQueueStore(sys.argv[1], durability="relaxed")
queue = PersistentQueue("jobs", store=store)
queue.put("first")
queue.get()

def fifos():
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass
    return [target for target in found if "-run/r" in target or "pipe:" in target]

def in_a_child(call):
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_child_keeps_nothing_open_of_its_parents_waiting(path: Path) -> None:
    run_program(
        START
        + """
before = len(fifos())
waiters = [store.watch(["jobs", "not yet"], "ready"), store.watch(["jobs"], "room")]
queue.put("told")
assert len(fifos()) > before + 4, fifos()

def look():
    assert len(fifos()) == before, fifos()

in_a_child(look)
""",
        path,
    )


def test_a_waiter_goes_on_in_the_parent_and_in_the_child(path: Path) -> None:
    run_program(
        START
        + """
waiter = store.watch(["jobs"], "ready")

def wait_here():
    assert waiter.wait(20), "opened again: look"
    assert queue.get_nowait() == "of the parent"
    queue.put("of the child")
    assert waiter.wait(20)
    waiter.close()

queue.put("of the parent")
in_a_child(wait_here)
assert waiter.wait(20)
assert queue.get_nowait() == "of the child"
queue.put("again")
assert waiter.wait(20)
waiter.close()
""",
        path,
    )


def test_forks_and_wakeups_do_not_hold_each_other_up(path: Path) -> None:
    run_program(
        START
        + """
over = threading.Event()

def put_and_watch():
    while not over.is_set():
        queue.put("x")
        store.watch(["jobs", "not yet"], "ready").close()

threads = [threading.Thread(target=put_and_watch) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    in_a_child(lambda: queue.put("from a child"))
over.set()
for thread in threads:
    thread.join(30)
    assert not thread.is_alive()
""",
        path,
    )


@pytest.mark.parametrize("action", ["signal.SIG_DFL", "lambda *_: os._exit(3)"])
def test_a_program_that_ends_with_its_pipe_does_not_end_because_nobody_waits(
    path: Path, action: str
) -> None:
    said = run_program(
        START
        + f"""
signal.signal(signal.SIGPIPE, {action})
store.watch(["jobs"], "ready").close()
for _ in range(3):
    queue.put("nobody waits")
waiter = store.watch(["jobs"], "ready")
queue.put("somebody waits")
assert waiter.wait(20)
waiter.close()

from localqueue.stores.sqlite.wakeups import fifo
(path,) = [name for name in os.listdir(sys.argv[1] + "-run") if name.startswith("ready-")]
end = fifo.open_to_tell(f"{{sys.argv[1]}}-run/{{path}}")
try:
    fifo.write_token(end)
except BrokenPipeError:
    print("nobody reads")
assert signal.SIGPIPE not in signal.sigpending()
assert signal.SIGPIPE not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
print("alive", flush=True)
""",
        path,
    )

    assert said == "nobody reads\nalive\n"
