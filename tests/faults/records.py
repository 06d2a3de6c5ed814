"""What happened to the files of a database, and what was answered meanwhile, in one order."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

CREATE, DELETE, RENAME, WRITE, TRUNCATE, SYNC, LOST, SYNC_FOLDER, MARK = range(9)

Record = tuple[Any, ...]
"""Its kind, and what belongs to it: names of files, inodes, data, or what was answered."""


def append_record(log: int, record: Record) -> None:
    os.write(log, pickle.dumps(record))


def read_records(log: Path) -> list[Record]:
    records: list[Record] = []
    with log.open("rb") as file:
        while True:
            try:
                records.append(pickle.load(file))
            except EOFError:
                return records
