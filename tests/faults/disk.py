"""A disk whose power is cut: what was not synced is there, not there, or there in part.

Built from recorded writes. A sync makes durable what was written to that file before it; a sync of
the folder does so for names. Of the rest any sector of 512 bytes may have been written or not, in
any order; the names of new and deleted files may have changed up to any point.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from tests.faults.records import (
    CREATE,
    DELETE,
    LOST,
    RENAME,
    SYNC,
    SYNC_FOLDER,
    TRUNCATE,
    WRITE,
    Record,
)

SECTOR = 512
MOODS = ("nothing", "everything", "a beginning", "anything")


class File:
    """What of a file is on the disk for sure, and what was written since."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def lose(self, chance: random.Random) -> None:
        """A sync failed: the kernel lets go of what it could not write, and never tries again."""
        self.durable = self.after_cut(chance, "anything")
        self.pending.clear()

    def after_cut(self, chance: random.Random, mood: str) -> bytearray:
        found = bytearray(self.durable)
        kept = len(self.pending)
        if mood == "nothing":
            return found
        if mood == "a beginning":
            kept = chance.randrange(len(self.pending) + 1)
        likely = chance.choice((0.1, 0.5, 0.9)) if mood == "anything" else 1.0
        for change in self.pending[:kept]:
            if isinstance(change, int):
                if chance.random() < likely:
                    _apply(found, change)
                continue
            for sector in _sectors(*change):
                if chance.random() < likely:
                    _apply(found, sector)
        return found


class Disk:
    """The files of one folder."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._by_inode: dict[int, File] = {}
        self._names: dict[str, File] = {}
        self._changes: list[dict[str, File | None]] = []
        """What each of them did to names, whole or not at all."""

    def happen(self, record: Record) -> None:
        kind, *rest = record
        if kind == CREATE:
            name, inode = rest
            self._by_inode[inode] = File()
            self._changes.append({name: self._by_inode[inode]})
        elif kind == DELETE:
            self._changes.append({rest[0]: None})
        elif kind == RENAME:
            name, to = rest
            self._changes.append({name: None, to: self._names_after(len(self._changes))[name]})
        elif kind == WRITE:
            inode, offset, data = rest
            self._by_inode[inode].pending.append((offset, data))
        elif kind == TRUNCATE:
            inode, size = rest
            self._by_inode[inode].pending.append(size)
        elif kind == SYNC:
            self._by_inode[rest[0]].sync()
        elif kind == LOST:
            self._by_inode[rest[0]].lose(self._chance)
        elif kind == SYNC_FOLDER:
            self._names = self._names_after(len(self._changes))
            self._changes.clear()

    def after_cut(self) -> dict[str, bytes]:
        """What might be found by who switches the power on again."""
        mood = self._chance.choice(MOODS)
        changed = self._chance.randrange(len(self._changes) + 1)
        names = self._names_after(changed)
        return {name: bytes(file.after_cut(self._chance, mood)) for name, file in names.items()}

    def _names_after(self, changed: int) -> dict[str, File]:
        names = dict(self._names)
        for change in self._changes[:changed]:
            for name, file in change.items():
                if file is None:
                    names.pop(name, None)
                else:
                    names[name] = file
        return names


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    offset, data = change
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes) -> Iterable[tuple[int, bytes]]:
    """The write as the disk does it: sector by sector of the disk, not of the write."""
    at = 0
    while at < len(data):
        upto = at + SECTOR - (offset + at) % SECTOR
        yield offset + at, data[at:upto]
        at = upto
