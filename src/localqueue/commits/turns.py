"""Threads that change a record of a store without compare-and-set take turns, key by key."""

from __future__ import annotations

import os
import threading
from weakref import WeakValueDictionary

STRIPES = 64
"""Keys share this many locks: a slow store holds up few others, least of all a heartbeat."""


class Turns:
    """The locks of one store, for every worker of this process that uses it."""

    def __init__(self) -> None:
        self._locks: tuple[threading.Lock, ...] = ()
        self.renew()

    def renew(self) -> None:
        self._locks = tuple(threading.Lock() for _ in range(STRIPES))

    def of(self, key: str) -> threading.Lock:
        return self._locks[hash(key) % STRIPES]


_known: WeakValueDictionary[int, Turns] = WeakValueDictionary()
"""By the number of the object: not every store can be referenced weakly, or be hashed."""
_making = threading.Lock()


def turns_at(store: object) -> Turns:
    """Those of this very object. Whoever keeps them has to keep the store, so its number, too."""
    with _making:
        turns = _known.get(id(store))
        if turns is None:
            turns = _known[id(store)] = Turns()
        return turns


def _after_fork_in_child() -> None:
    global _making
    # A thread that held one is not in the child, and would never let it go.
    _making = threading.Lock()
    for turns in list(_known.values()):
        turns.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
