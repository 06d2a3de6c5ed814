"""Waiting for messages: told by the store, by the clock, and once a second by nobody."""

from __future__ import annotations

import logging
import math
import time

from localqueue.errors import StoreBusy, StoreFull
from localqueue.stores.protocol import Waiter
from localqueue.workers.bell import Bell
from localqueue.workers.driver import Ask
from localqueue.workers.source import Sources

log = logging.getLogger("localqueue.workers")

LOOK_AGAIN = 1.0
"""An idle worker looks by itself this often: what time alone changes wakes nobody."""


PATIENCE = 0.25
"""How long a store is left alone that could not be watched."""


class Lookout:
    """Says whether a lease may find something, and sleeps until one may.

    The order is that of every waiter: watch, look, and only then wait.
    """

    def __init__(self, sources: Sources, ask: Ask, bell: Bell) -> None:
        self._sources = sources
        self._ask = ask
        self._bell = bell
        self.is_promising = True
        """Whether a look may find something."""
        self._looked_at = 0.0
        self._due_in: float | None = None
        """From the last look, when time makes something ready. None: nobody asked yet."""
        self._waiter: Waiter | None = None

    def looks(self) -> None:
        """A lease is about to be asked for."""
        self._looked_at = time.monotonic()
        self._due_in = None

    async def found(self, *, more: bool) -> None:
        """It has what it came for: whoever waits next may be told now."""
        self.is_promising = more
        await self.close()

    def found_nothing(self) -> None:
        self.is_promising = False

    async def rest(self, seconds: float, *, look: bool) -> None:
        """Sleep for so many seconds at most; with ``look``, until there may be something."""
        if look:
            try:
                await self._watch(seconds)
                return
            except (StoreBusy, StoreFull) as error:
                log.warning("the store cannot be watched now, trying again: %s", error)
                seconds = min(seconds, PATIENCE)
        await self._bell.sleep(seconds, None)

    async def _watch(self, seconds: float) -> None:
        left = min(seconds, await self._until_next_look())
        if self._waiter is None and left > 0:
            # Watched before the next look, so that a put in between is not missed.
            names = self._sources.names
            self._waiter = await self._ask(lambda store: store.watch(names, "ready"))
            self.is_promising = True
        elif left > 0:
            self.is_promising = await self._bell.sleep(left, self._waiter)
        else:
            self.is_promising = True

    async def close(self) -> None:
        await self._bell.let_go()
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.close()

    async def _until_next_look(self) -> float:
        if self.is_promising:
            return 0.0
        if self._due_in is None:
            names = self._sources.names
            due = await self._ask(lambda store: store.next_due(names))
            self._due_in = math.inf if due is None else max(0.0, due - self._sources.when.now())
        return self._looked_at + min(LOOK_AGAIN, self._due_in) - time.monotonic()
