"""The program of a process that runs handlers for a worker.

Run as a file, with the interpreter's own modules alone, until its order says where to import from.
"""

from __future__ import annotations

import marshal
import sys
from typing import TypedDict


class Order(TypedDict):
    """What the process is told once, by its standard input."""

    path: list[str]
    """Where the worker imports from."""
    arguments: list[str]
    """Of the program that was started."""
    parent: int
    data: int
    control: int
    """Its ends of two sockets."""
    begun: int
    """Where it writes which call it began."""
    module: str
    name: str
    """Where the handler is."""
    main: tuple[str, str] | None
    """The program that was started: its path and its package."""


def main() -> None:
    order: Order = marshal.load(sys.stdin.buffer)
    sys.path[:] = order["path"]
    sys.argv[:] = order["arguments"]
    from localqueue.workers.child import serve

    serve(order)


if __name__ == "__main__":
    main()
