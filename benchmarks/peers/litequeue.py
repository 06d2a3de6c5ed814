"""litequeue, whose own setting is the relaxed one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value


class Lite(Contestant):
    """It takes text, so that making JSON of a value and back is the caller's part."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        from litequeue import LiteQueue

        self._queue = LiteQueue(str(folder / "lite.sqlite3"))
        if durability == "full":
            self._queue.conn.execute("PRAGMA synchronous = FULL")

    def put(self, value: Value) -> object:
        return self._queue.put(json.dumps(value, separators=(",", ":")))

    def take(self, count: int) -> Sequence[Value]:
        queue = self._queue
        taken = []
        for _ in range(count):
            message = queue.pop()
            # Newer versions, which need Python 3.12, ask for the claim as well.
            if hasattr(message, "claim_id"):
                queue.done(message.message_id, claim_id=message.claim_id)
            else:
                queue.done(message.message_id)
            taken.append(json.loads(message.data))
        return taken

    def tidy(self) -> None:
        self._queue.prune()

    def close(self) -> None:
        self._queue.close()


ENTRANT = Entrant(
    "litequeue",
    "peer",
    Lite,
    needs=("litequeue",),
    lacks="lease expiry, journal",
)
