"""A process that has everything imported and forks workers: hundreds of them in seconds.

A worker is a function ``tests.faults.MODULE:NAME`` of arguments that JSON can carry; a module of
another folder is named in full. The nursery itself opens no file, so nothing of SQLite crosses the
fork. Its program is this module; with the name of a worker and its arguments it is that worker.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
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


class Child:
    """A worker in a child of this process, which hears it, tells it to go on, and stops it."""

    def __init__(self, work: str, *arguments: Any) -> None:
        command = ["-W", "ignore", "-m", "tests.faults.nursery", work, json.dumps(arguments)]
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        with self._process:
            self._process.wait(PATIENCE)

    def hear(self) -> Any:
        """The next thing it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the worker ended"
        return json.loads(line)

    def hear_all(self) -> list[Any]:
        """What else it has said, and its children: until the last of them has ended."""
        assert self._process.stdout is not None
        return [json.loads(line) for line in self._process.stdout]

    def tell(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it ended"

    def go_on(self) -> None:
        """After a stop."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait(PATIENCE) == -signal.SIGKILL

    def wait(self) -> None:
        """For its good end."""
        assert self._process.wait(PATIENCE) == 0


def say(what: Any) -> None:
    """Tell the parent of this child something; in one write, for threads and children too."""
    os.write(1, json.dumps(what).encode() + b"\n")


def say_and_wait(what: Any) -> None:
    say(what)
    sys.stdin.readline()


def _find(work: str) -> Callable[..., object]:
    module, name = work.split(":")
    home = module if "." in module else f"tests.faults.{module}"
    function: Callable[..., object] = getattr(importlib.import_module(home), name)
    return function


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
    function = _find(work)
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
    if len(sys.argv) > 1:
        _find(sys.argv[1])(*json.loads(sys.argv[2]))
    else:
        _serve()
