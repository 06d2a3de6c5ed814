"""How far the events of a store are in a table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """A journal: the file it is in, and which shard of it.

    The file is named by the 16 hex digits that its positions begin with. A restored backup writes
    on under new digits, so that its events are never taken for those that the lost file had at the
    same seq.
    """

    store: str
    shard: str


Positions = Mapping[Place, int]
"""Up to which seq a journal is in a table. A place that is not named has nothing in it."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Which queues come to the lake: some, or all when none is named."""

    queues: tuple[str, ...] = ()

    def application(self, place: Place) -> str:
        """The name under which a table keeps the position of this feed, as an app transaction.

        The pipeline's name is no part of it: whoever brings the same events brings them once.
        """
        name = f"localqueue/{place.store}/{place.shard}"
        if not self.queues:
            return name
        chosen = "\0".join(sorted(self.queues)).encode()
        return f"{name}/{hashlib.sha256(chosen).hexdigest()[:16]}"


def reached(eras: Iterable[tuple[str, int]], position: Callable[[str], int]) -> int:
    """Up to which seq a table has a store's events, under whatever names it has had.

    ``eras`` are its names with the first seq of each, in their order; ``position`` says how far the
    events of one name are in the table.
    """
    found = 0
    for name, first in eras:
        # What the table has beyond the beginning of an era was lost when the backup was restored.
        found = position(name) or min(found, max(first - 1, 0))
    return found


def furthest(several: Iterable[Positions]) -> dict[Place, int]:
    """The greatest seq of each place."""
    found: dict[Place, int] = {}
    for positions in several:
        for place, seq in positions.items():
            found[place] = max(seq, found.get(place, 0))
    return found
