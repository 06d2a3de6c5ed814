"""Work in an interpreter of its own.

Not by multiprocessing, whose children first import what the parent was started as: neither pytest
nor the other benchmarks belong into a process that is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

PATIENCE = 60.0
"""Seconds after which a child that should end is killed."""


class Child:
    """Runs ``function(pipe, *arguments)`` in a new interpreter; ``pipe`` here is the other end.

    The function and its arguments are pickled, so the function is one of a module. When this is
    closed, the function meets EOFError at its next ``recv``, and should return.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        self.pipe.send((function, arguments))

    def close(self) -> None:
        self.pipe.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _main() -> None:
    with Connection(int(sys.argv[1])) as pipe:
        function, arguments = pipe.recv()
        function(pipe, *arguments)


if __name__ == "__main__":
    _main()
