"""A process that has everything imported and forks workers: hundreds of them in seconds.

A worker is a function ``tests.faults.MODULE:NAME`` of arguments that JSON can carry. The nursery
itself opens no file, so nothing of SQLite crosses the fork. Its program is this module.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


def environment() -> dict[str, str]:
    """That of a child which finds the tests and the same product as this process."""
    import localqueue

    product = Path(localqueue.__file__).parents[1]
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(product), str(ROOT)])}


class Nursery:
    """The side that asks for workers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.faults.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with self._process:
            self._process.wait(PATIENCE)

    def start(self, work: str, *arguments: Any) -> int:
        """The pid of a new worker. It stays taken until ``wait`` or ``kill`` is called with it."""
        return self._ask("start", work, *arguments)

    def wait(self, pid: int) -> int:
        """How the worker ended: its exit status, or a signal's number, negative."""
        return self._ask("wait", pid)

    def kill(self, pid: int) -> int:
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def run(self, work: str, *arguments: Any) -> int:
        """Start a worker and wait for its end."""
        return self.wait(self.start(work, *arguments))

    def _ask(self, *question: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the nursery ended"
        return int(answer)


def _serve() -> None:
    workers: set[int] = set()
    for line in sys.stdin:
        question, *rest = json.loads(line)
        if question == "start":
            answer = _start(*rest)
            workers.add(answer)
        else:
            status = os.waitpid(rest[0], 0)[1]
            workers.discard(rest[0])
            answer = os.waitstatus_to_exitcode(status)
        print(answer, flush=True)  # noqa: T201
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


def _start(work: str, *arguments: Any) -> int:
    # Imported here and not in the worker: a fork should find everything loaded.
    module, name = work.split(":")
    function = getattr(importlib.import_module(f"tests.faults.{module}"), name)
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        os.close(sys.stdin.fileno())
        function(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
