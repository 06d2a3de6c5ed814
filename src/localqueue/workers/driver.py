"""The seams between a worker and what runs its handlers: threads, tasks, processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from localqueue.errors import LocalQueueError
from localqueue.message import QueueMessage
from localqueue.stores.protocol import QueueStore
from localqueue.workers.context import Slot

R = TypeVar("R")


class Hand(Protocol):
    """Calls the handler for one runner, one message at a time."""

    def prepare(self) -> bool:
        """Get ready for a call, in the runner's thread; before every one.

        False when the worker stops meanwhile. What it raises ends the worker: no message is to
        blame.
        """

    def call(self, message: QueueMessage[Any]) -> Any:
        """What the handler returns; what it raises is raised. In the runner's thread.

        HandlerDied when that which ran the handler died with it.
        """

    def interrupt(self, error: LocalQueueError) -> None:
        """The call that runs now should end, because of this. From any thread; never blocks.

        What ``call`` raises then is taken for this error. Where a call cannot be ended from
        outside, nothing: the handler was told.
        """

    def close(self) -> None:
        """There are no more calls. Idempotent; ends what runs the handler, if that can be ended."""


Hands = Callable[[Slot], Hand]
"""Makes the hand for a slot, in the thread of its runner, before the first message."""


class Crew(Protocol):
    """The runners, as the foreman sees them."""

    def give(self, messages: Sequence[QueueMessage[Any]]) -> None:
        """Put them behind what is pending, and wake as many runners as they need."""

    def dismiss(self) -> None:
        """There is no more work: runners return when nothing is pending."""


class Ask(Protocol):
    """How the foreman gets an answer from the store."""

    async def __call__(self, call: Callable[[QueueStore], R]) -> R:
        """``call`` makes one call of a verb and nothing else."""

    async def run(self, function: Callable[[], R]) -> R:
        """What a function returns that may use the store as it is, and blocks for it."""


class Driver(Protocol):
    """One kind of worker: where handlers run. ``run`` returns when its shift is over."""

    def run(self) -> None: ...


class Direct:
    """The foreman has a thread of its own, and calls the store there."""

    def __init__(self, store: QueueStore) -> None:
        self._store = store

    async def __call__(self, call: Callable[[QueueStore], R]) -> R:
        return call(self._store)

    async def run(self, function: Callable[[], R]) -> R:
        return function()


class Later:
    """The foreman shares its loop with handlers: the store's helper thread does the work."""

    def __init__(self, twin: QueueStore) -> None:
        self._twin = twin

    async def __call__(self, call: Callable[[QueueStore], R]) -> R:
        answer: Awaitable[R] = call(self._twin)  # type: ignore[assignment]
        return await answer

    async def run(self, function: Callable[[], R]) -> R:
        return await asyncio.to_thread(function)
