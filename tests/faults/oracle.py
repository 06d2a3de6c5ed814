"""What a worker was about to do and what it was answered, in a file that outlives its death."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """``about`` comes before a call, ``answered`` after it."""

    when: str
    verb: str
    what: list[Any]


class Oracle:
    """Written by one worker. Each line is one write: a kill leaves it whole or leaves it out."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def about(self, verb: str, *what: Any) -> None:
        self._write("about", verb, what)

    def answered(self, verb: str, *what: Any) -> None:
        self._write("answered", verb, what)

    def _write(self, when: str, verb: str, what: tuple[Any, ...]) -> None:
        os.write(self._file, json.dumps([when, verb, what]).encode() + b"\n")


def read_oracle(path: str | Path) -> list[Entry]:
    """Everything that was written. A line cut in two by a kill was not, and counts as such."""
    file = Path(path)
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")[:-1]
    return [Entry(*json.loads(line)) for line in lines]
