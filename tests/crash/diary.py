"""What workers did, told in a file that outlives them: a line for each thing, in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """``begun``: a runner has taken the message. ``did``: its handler had its effect."""

    what: str
    id: str
    attempt: int = 0
    crashes: int = 0
    """How many crashes the message was charged with when it was delivered."""


def tell(diary: str, entry: Entry) -> None:
    """In one write to the end of the file: no death leaves half a line."""
    file = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, (" ".join(map(str, entry)) + "\n").encode())
    finally:
        os.close(file)


def read(diary: Path) -> list[Entry]:
    lines = [line.split() for line in diary.read_text().splitlines()]
    return [Entry(what, id, int(attempt), int(crashes)) for what, id, attempt, crashes in lines]


class Progress:
    """How many effects there are by now, without reading everything again."""

    def __init__(self, diary: Path) -> None:
        diary.touch()
        self._file = diary.open("rb")
        self._seen = 0

    def effects(self) -> int:
        self._seen += sum(line.startswith(b"did ") for line in self._file)
        return self._seen

    def close(self) -> None:
        self._file.close()
