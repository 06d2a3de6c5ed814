"""Short ways to say what a test of events does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from localqueue.queue import PersistentQueue
from localqueue.telemetry.events import Event

Queue = PersistentQueue[Any]
NewQueue = Callable[..., Queue]


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def only(self) -> Event:
        """The one event there was since the last look."""
        (event,) = self.take()
        return event

    def take(self) -> list[Event]:
        """What was heard since the last look."""
        events, self.events = self.events, []
        return events


class Awaited:
    """The calls of ``queue.aio``, awaited on a loop of their own and written like blocking ones."""

    def __init__(self, queue: Queue, loop: asyncio.AbstractEventLoop) -> None:
        self._aio = queue.aio
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._aio, name)
        return lambda *args, **options: self._loop.run_until_complete(call(*args, **options))
