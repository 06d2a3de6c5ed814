"""The answers to a lease of messages that have nothing but a value, made when somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from localqueue.message import State
from localqueue.stores.protocol import StoredMessage


@dataclass(slots=True, eq=False)
class LeasedTogether(Sequence[StoredMessage]):
    """First deliveries of one queue under one lease, as JSON: they have most of it in common.

    Kept as columns: a hundred StoredMessages, to be turned into something else at once, would cost
    as much as claiming their rows.
    """

    queue: str
    worker: str | None
    leased_at: float
    until: float
    first_token: int
    """Of the first; each has the next one."""
    ids: Sequence[str]
    bodies: Sequence[bytes]
    ranks: Sequence[int]
    created_at: Sequence[float]
    available_at: Sequence[float]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[StoredMessage]: ...
    def __getitem__(self, index: int | slice) -> StoredMessage | list[StoredMessage]:
        places = range(len(self.ids))[index]
        return self._made(places) if isinstance(places, int) else [*map(self._made, places)]

    def history(self) -> list[dict[str, Any]]:
        """What each of them has behind it: this lease."""
        entry: dict[str, Any] = {"type": "leased", "at": self.leased_at, "attempt": 1}
        if self.worker is not None:
            entry["leased_by"] = self.worker
        return [entry]

    def _made(self, at: int) -> StoredMessage:
        return StoredMessage(
            self.ids[at], self.queue, self.bodies[at], "json", None, State.INFLIGHT, 1,
            self.created_at[at], self.available_at[at], self.until, self.worker, None, None,
            self.history(), None, -self.ranks[at], None, None, 0, 0, self.first_token + at,
        )  # fmt: skip


def size_of(leased: Sequence[StoredMessage]) -> int:
    """The bytes of all values together."""
    if type(leased) is LeasedTogether:
        return sum(map(len, leased.bodies))
    return sum([len(message.body) for message in leased])
