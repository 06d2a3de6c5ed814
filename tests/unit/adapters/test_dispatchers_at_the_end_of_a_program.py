"""A program that ends without closing its dispatcher loses nothing, and nobody is charged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localqueue import PersistentQueue, QueueMessage

PATIENCE = 60.0

PROGRAM = """
import atexit, sys, threading, time
from localqueue import PersistentQueue, ThreadedDispatcher, WorkerPoolDispatcher
from localqueue.adapters.dispatch import process_end

began, ends = threading.Event(), threading.Event()

def handle(message):
    began.set()
    {handler}

process_end.DRAIN = {drain}
queue = PersistentQueue(
    "jobs", store_path=sys.argv[1], dispatch_policy={dispatcher}([handle], {options})
)
queue.put_many(["first", "second", "third"])
assert began.wait(30)
atexit.register(ends.set)
"""
LATE = """ends.wait(30)
    time.sleep(0.2)
    queue.put("more")
    print("handled", message.value)
"""


def left_by(path: Path, **parts: Any) -> tuple[str, list[QueueMessage[str]]]:
    """What such a program prints, and what is in the queue when it has ended."""
    program = PROGRAM.format(
        **{"dispatcher": "ThreadedDispatcher", "drain": 30, "options": ""} | parts
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    with PersistentQueue[str]("jobs", store_path=path) as queue:
        return ended.stdout, queue.peek(10)


def charges(messages: list[QueueMessage[str]]) -> set[tuple[int, int]]:
    return {(message.failures, message.crashes) for message in messages}


def test_what_runs_ends_and_the_rest_waits_for_the_next_consumer(tmp_path: Path) -> None:
    printed, left = left_by(tmp_path / "jobs.sqlite3", handler=LATE)

    assert printed == "handled first\n"
    assert [message.value for message in left] == ["second", "third", "more"]
    assert charges(left) == {(0, 0)}


def test_the_handlers_of_a_pool_all_end(tmp_path: Path) -> None:
    pool = {"dispatcher": "WorkerPoolDispatcher", "options": "workers=3"}

    printed, left = left_by(tmp_path / "jobs.sqlite3", handler=LATE, **pool)

    begun = printed.count("handled")
    assert begun >= 1
    assert sorted(message.value for message in left).count("more") == begun
    assert len(left) == 3
    assert charges(left) == {(0, 0)}


@pytest.mark.parametrize("limits", [{"drain": 0.2}, {"options": "drain_timeout=0.2"}])
def test_a_handler_that_does_not_end_is_given_back_uncharged(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    _, left = left_by(tmp_path / "jobs.sqlite3", handler="threading.Event().wait()", **limits)

    assert sorted(message.value for message in left) == ["first", "second", "third"]
    assert charges(left) == {(0, 0)}
