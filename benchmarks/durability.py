"""What a commit waits for, the same on every side of a comparison.

With ``relaxed`` a message survives the death of the process, and a power cut takes at most the last
moments; with ``full`` it is on stable storage when the call returns.
"""

from __future__ import annotations

from typing import Literal

Durability = Literal["relaxed", "full"]
DURABILITIES: tuple[Durability, ...] = ("relaxed", "full")

SYNCHRONOUS: dict[Durability, str] = {"relaxed": "NORMAL", "full": "FULL"}
"""The same in SQLite's own words, for a database in WAL mode."""
