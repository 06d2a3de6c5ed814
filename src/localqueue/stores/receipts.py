"""The receipts of messages that are settled together, made when somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from localqueue.message import Receipt


@dataclass(slots=True, eq=False)
class Receipts(Sequence[Receipt]):
    """Proofs of leases of one queue, kept as columns: most stores take them so."""

    queue: str
    ids: Sequence[str]
    tokens: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        places = range(len(self.ids))[index]
        return self._made(places) if isinstance(places, int) else [*map(self._made, places)]

    def _made(self, at: int) -> Receipt:
        return Receipt(self.queue, self.ids[at], self.tokens[at])
