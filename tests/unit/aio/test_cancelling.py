"""Cancelling: before a call is taken it changes nothing, afterwards it runs to its end."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from localqueue.codec import JSON_CODEC
from localqueue.policies import AtMostOnceDelivery
from localqueue.queue import PersistentQueue
from localqueue.stores.pending import Mailbox, Pending
from localqueue.stores.protocol import QueueStore
from tests.unit.aio.phrases import (
    PATIENCE,
    Aio,
    GatedClock,
    NewQueue,
    WatchedStore,
    asleep,
    eventually,
    has,
    in_a_loop,
    outcome,
    settled,
)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    assert isinstance(await outcome(task), asyncio.CancelledError)


async def taken(
    clock: GatedClock, call: Callable[[], Coroutine[Any, Any, Any]]
) -> asyncio.Task[Any]:
    """The call, when somebody works on it and does not come to an end."""
    clock.shut()
    task = asyncio.create_task(call())
    await clock.reached()
    return task


@in_a_loop
async def test_a_put_that_was_not_taken_stores_nothing(queue: Aio, clock: GatedClock) -> None:
    await queue.put("before")
    first = await taken(clock, lambda: queue.put("first"))
    second = asyncio.create_task(queue.put("second"))
    await settled()

    await cancelled(second)
    clock.open()
    await first
    await queue.put("third")

    assert [message.value for message in await queue.get_messages(9)] == [
        "before",
        "first",
        "third",
    ]


@in_a_loop
async def test_a_get_that_was_not_taken_leases_nothing(queue: Aio, clock: GatedClock) -> None:
    await queue.put_many(["a", "b"])
    first = await taken(clock, queue.get_message)
    second = asyncio.create_task(queue.get_message())
    await settled()

    await cancelled(second)
    clock.open()

    assert (await first).value == "a"
    again = await queue.get_message()
    assert (again.value, again.attempts) == ("b", 1)


@in_a_loop
async def test_a_put_that_was_taken_is_stored(queue: Aio, clock: GatedClock) -> None:
    await queue.put("before")
    put = await taken(clock, lambda: queue.put("a"))

    await cancelled(put)
    clock.open()

    await eventually(lambda: has(queue, 2))


@in_a_loop
async def test_an_acknowledgement_that_was_taken_stands(queue: Aio, clock: GatedClock) -> None:
    await queue.put("a")
    message = await queue.get_message()
    ack = await taken(clock, lambda: queue.ack(message))

    await cancelled(ack)
    clock.open()

    assert not await queue.ack(message)
    assert (await queue.stats()).total == 0


@in_a_loop
async def test_what_a_get_leased_for_nobody_is_released_at_once(
    queue: Aio, clock: GatedClock
) -> None:
    await queue.put_many(["a", "b", "c"])
    get = await taken(clock, lambda: queue.get_messages(2))

    await cancelled(get)
    clock.open()

    # The clock stands still: no lease ends by itself.
    assert sorted([await queue.get() for _ in range(3)]) == ["a", "b", "c"]


@in_a_loop
async def test_a_get_that_waits_and_is_cancelled_leaves_the_message_to_another(
    queue: Aio, store: WatchedStore
) -> None:
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asleep(store, first, second)

    put = asyncio.create_task(queue.put("a"))
    await cancelled(first)
    await put

    assert await second == "a"


@in_a_loop
async def test_under_at_most_once_what_was_taken_for_nobody_is_gone(
    new_queue: NewQueue, clock: GatedClock
) -> None:
    queue = new_queue(delivery_policy=AtMostOnceDelivery()).aio
    await queue.put_many(["a", "b"])
    get = await taken(clock, queue.get)

    await cancelled(get)
    clock.open()

    assert await queue.get() == "b"
    assert (await queue.stats()).total == 0


@in_a_loop
async def test_a_call_of_a_thread_that_was_taken_stands(queue: Aio, clock: GatedClock) -> None:
    await queue.put_many(["a", "b"])
    purge = await taken(clock, queue.purge)

    await cancelled(purge)
    clock.open()

    await eventually(lambda: has(queue, 0))


@pytest.mark.parametrize("seconds", [0.0, 0.0002, 0.002])
@in_a_loop
async def test_a_timeout_around_get_loses_no_message(store: QueueStore, seconds: float) -> None:
    """Cut off at every moment that a get has: nothing may be lost, or stay leased for nobody."""
    queue = PersistentQueue[int]("jobs", store=store).aio
    moments = random.Random(17)
    got: list[int] = []

    async def consume() -> None:
        while len(got) < 60:
            try:
                async with asyncio.timeout(moments.uniform(0, 2 * seconds)):
                    message = await queue.get_message()
            except TimeoutError:
                # So that somebody gets something also where a call takes longer than that.
                if moments.random() < 0.2 and len(got) < 60:
                    message = await queue.get_message()
                else:
                    continue
            got.append(message.value)
            assert await queue.ack(message)

    async def produce() -> None:
        for number in range(100):
            await queue.put(number)

    await asyncio.gather(produce(), *(consume() for _ in range(4)))
    await eventually(lambda: has(queue, 100 - len(got)))
    got += [await queue.get() for _ in range(100 - len(got))]

    assert sorted(got) == list(range(100))


class GatedCodec:
    """JSON that is decoded when the test says so."""

    id = "gated"

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def encode(self, value: Any) -> bytes:
        return JSON_CODEC.encode(value)

    def decode(self, body: bytes) -> Any:
        self.began.set()
        assert self.may_end.wait(PATIENCE)
        return JSON_CODEC.decode(body)

    def fingerprint(self, value: Any, body: bytes) -> int:
        return JSON_CODEC.fingerprint(value, body)

    def as_dict(self) -> dict[str, Any]:
        return {"type": self.id}


@in_a_loop
async def test_what_a_get_has_not_decoded_yet_is_released(
    whole_store: QueueStore, clock: GatedClock
) -> None:
    """A large batch is decoded in a thread, so it may be cut off there too."""
    codec = GatedCodec()
    queue = PersistentQueue[int]("jobs", store=whole_store, clock=clock, codec_policy=codec).aio
    await queue.put_many(range(300))
    get = asyncio.create_task(queue.get_messages(300))
    assert await asyncio.to_thread(codec.began.wait, PATIENCE)

    await cancelled(get)
    codec.may_end.set()

    await eventually(lambda: has(queue, 300))
    assert len(await queue.get_messages(300)) == 300


# --- between the answer and the task that waits for it ------------------------------------------
class Told:
    def __init__(self) -> None:
        self.undone: list[str] = []
        self.pending: Pending[str] = Pending(
            Mailbox(asyncio.get_running_loop()), self.undone.append
        )
        self.task = asyncio.create_task(self._wait())

    async def _wait(self) -> str:
        return await self.pending


@in_a_loop
async def test_an_answer_that_is_seen_is_not_undone() -> None:
    told = Told()
    await settled()

    told.pending.resolve("answer", None)

    assert await told.task == "answer"
    assert told.undone == []


@in_a_loop
async def test_an_answer_that_came_before_the_task_could_look_is_undone() -> None:
    told = Told()
    await settled()

    told.pending.resolve("answer", None)
    await cancelled(told.task)

    assert told.undone == ["answer"]


@in_a_loop
async def test_an_answer_that_came_after_the_task_was_cancelled_is_undone() -> None:
    told = Told()
    await settled()
    await cancelled(told.task)

    assert not told.pending.taken()
    told.pending.resolve("answer", None)

    assert told.undone == ["answer"]


@in_a_loop
async def test_an_answer_of_a_coroutine_that_was_thrown_away_is_undone() -> None:
    told = Told()
    await settled()
    coroutine = told.pending.__await__()
    coroutine.send(None)

    coroutine.close()
    told.pending.resolve("answer", None)

    assert told.undone == ["answer"]
    assert isinstance(await outcome(told.task), asyncio.CancelledError)


@in_a_loop
async def test_an_error_has_nothing_to_undo() -> None:
    for error in (ValueError("no"), StopIteration()):
        told = Told()
        await settled()

        told.pending.resolve("", error)

        assert isinstance(await outcome(told.task), (ValueError, RuntimeError))
        assert told.undone == []


def test_answers_for_a_loop_that_was_closed_are_undone() -> None:
    undone: list[str] = []
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    pending: Pending[str] = Pending(mailbox, undone.append)
    loop.close()

    mailbox.put(pending, "answer", None)
    mailbox.tell()

    assert undone == ["answer"]
