"""The loops of the page about persistent workers, and what signals do to them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localqueue import PersistentQueue, persistent_worker
from localqueue.workers import current_message

PAGE = Path(__file__).resolve().parents[3] / "docs" / "persistent-worker.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

LOOPS = {
    "thread": """
@persistent_worker(queue)
def job(value):
    print("started", flush=True)
    time.sleep(60 if value == "long" else 0)
serve(job)
""",
    "task": """
@persistent_async_worker(queue)
async def job(value):
    print("started", flush=True)
    await asyncio.sleep(60 if value == "long" else 0)
asyncio.run(serve_on_a_loop(job))
""",
    "nobody": """
@persistent_worker(queue)
def job(value):
    print("started", flush=True)
    time.sleep(60)
while True:
    job()
""",
}


def program(loop: str, path: Path) -> str:
    recipes = [b for b in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if "def serve" in b]
    assert len(recipes) == 2
    return "\n".join(
        [
            "import asyncio, time",
            "from localqueue import PersistentQueue, persistent_async_worker, persistent_worker",
            *recipes,
            f"queue = PersistentQueue('jobs', store='sqlite:///{path}')",
            "print('ready', flush=True)",
            LOOPS[loop],
            "print('stopped', flush=True)",
        ]
    )


def stopped(loop: str, path: Path, how: signal.Signals) -> tuple[int, str]:
    """The exit code of a loop that gets the signal after its handler began, and what it printed."""
    running = subprocess.Popen(
        [sys.executable, "-c", program(loop, path)], stdout=subprocess.PIPE, text=True
    )
    with running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "ready\n"
            assert running.stdout.readline() == "started\n"
            running.send_signal(how)
            return running.wait(30), running.stdout.read()
        finally:
            running.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.mark.parametrize("loop", ["thread", "task"])
def test_sigterm_stops_the_loops_of_the_page_and_nothing_is_charged(loop: str, path: Path) -> None:
    with PersistentQueue[Any]("jobs", store=f"sqlite:///{path}") as queue:
        put = queue.put("long")

        assert stopped(loop, path, signal.SIGTERM) == (0, "stopped\n")

        seen = queue.inspect(put.id)
        assert seen is not None
        assert (seen.state, seen.failures, seen.crashes) == ("ready", 0, 0)


def test_an_interrupt_stops_the_loop_of_a_thread_and_nothing_is_charged(path: Path) -> None:
    with PersistentQueue[Any]("jobs", store=f"sqlite:///{path}") as queue:
        put = queue.put("long")

        assert stopped("thread", path, signal.SIGINT) == (0, "stopped\n")

        seen = queue.inspect(put.id)
        assert seen is not None
        assert (seen.state, seen.failures, seen.crashes) == ("ready", 0, 0)


def test_a_sigterm_that_nobody_handles_is_a_crash_of_the_message(path: Path) -> None:
    with PersistentQueue[Any]("jobs", store=f"sqlite:///{path}") as queue:
        queue.put("long")

        code, printed = stopped("nobody", path, signal.SIGTERM)

        assert (code, printed) == (-signal.SIGTERM, "")

        # Who comes next finds out.
        @persistent_worker(queue)
        def crashes(value: Any) -> int:
            return current_message().message.crashes

        assert crashes() == 1  # type: ignore[call-arg]


@pytest.mark.parametrize("loop", ["thread", "task"])
def test_sigterm_stops_the_loops_of_the_page_while_nothing_is_there(loop: str, path: Path) -> None:
    with PersistentQueue[Any]("jobs", store=f"sqlite:///{path}") as queue:
        queue.put("short")

        assert stopped(loop, path, signal.SIGTERM) == (0, "stopped\n")
