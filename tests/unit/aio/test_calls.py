"""What is awaited does what the blocking call does."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from queue import Empty, Full
from typing import Any

import pytest

from localqueue.errors import (
    InvalidArgument,
    InvalidMessage,
    SettingsOverwritten,
    StoreClosed,
    WrongType,
)
from localqueue.policies import (
    AtMostOnceDelivery,
    DynamicFanoutSubscriptions,
    PublishSubscribeRouting,
    RejectingBackpressure,
    ThrottlingBackpressure,
)
from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import Cancelled, LeaseAnswer, QueueStore
from localqueue.stores.settings import QueueSettings
from tests.unit.aio.phrases import (
    Aio,
    GatedClock,
    NewQueue,
    Queue,
    eventually,
    has,
    in_a_loop,
)


@in_a_loop
async def test_what_is_put_is_got_and_acknowledged(queue: Aio) -> None:
    put = await queue.put({"order": 17})

    message = await queue.get_message(leased_by="w1")

    assert (message.id, message.value, message.leased_by) == (put.id, {"order": 17}, "w1")
    assert await queue.ack(message)
    assert not await queue.ack(message)
    assert (await queue.stats()).total == 0


@in_a_loop
async def test_both_faces_are_one_queue(queue: Aio) -> None:
    blocking = queue.queue
    await queue.put("awaited")
    await asyncio.to_thread(blocking.put, "blocking")

    assert await asyncio.to_thread(blocking.get) == "awaited"
    assert await queue.get() == "blocking"
    assert blocking.aio is queue
    assert (queue.name, repr(queue)) == ("jobs", f"{blocking!r}.aio")


@in_a_loop
async def test_a_batch_is_put_got_and_acknowledged_together(queue: Aio) -> None:
    put = await queue.put_many(range(5))

    got = await queue.get_messages(10)

    assert [message.value for message in got] == [0, 1, 2, 3, 4]
    assert [message.id for message in got] == [message.id for message in put]
    assert await queue.ack_many([*got, "0" * 32]) == [True] * 5 + [False]
    assert await queue.put_many([]) == []
    assert await queue.ack_many([]) == []


@pytest.mark.parametrize("count", [1, 300])
@in_a_loop
async def test_a_large_batch_is_as_good_as_a_small_one(whole_queue: Aio, count: int) -> None:
    values = [{"number": number} for number in range(count)]

    put = await whole_queue.put_many(values, dedupe_key=lambda value: f"k{value['number']}")
    got = await whole_queue.get_messages(1000)

    assert [message.value for message in put] == [message.value for message in got] == values
    assert (put[0].dedupe_key, got[-1].dedupe_key) == ("k0", f"k{count - 1}")


@in_a_loop
async def test_a_large_value_is_as_good_as_a_small_one(queue: Aio) -> None:
    await queue.put("x" * 1_000_000)

    assert await queue.get() == "x" * 1_000_000


@in_a_loop
async def test_release_gives_it_to_the_next_and_dead_letter_to_nobody(
    queue: Aio, clock: GatedClock
) -> None:
    await queue.put("a")
    message = await queue.get_message()
    assert await queue.release(message, delay=5, error="later")

    with pytest.raises(Empty):
        await queue.get_nowait()
    clock.advance(5)
    again = await queue.get_message(block=False)
    assert await queue.dead_letter(again, error=RuntimeError("no good"))

    assert not await queue.release(again)
    [dead] = await queue.dead_letters()
    assert (dead.id, dead.attempts) == (message.id, 2)
    assert await queue.requeue_dead(dead)
    assert await queue.qsize() == 1
    assert not await queue.empty()


@in_a_loop
async def test_a_lease_is_extended_and_its_holder_asked_to_stop(
    whole_queue: Aio, clock: GatedClock
) -> None:
    await whole_queue.put("a")
    message = await whole_queue.get_message()
    clock.advance(29)

    assert await whole_queue.extend(message, 60, note="half") is LeaseAnswer.HELD
    clock.advance(59)
    assert await whole_queue.cancel(message) is Cancelled.ASKED
    assert await whole_queue.extend(message) is LeaseAnswer.CANCEL_ASKED
    assert await whole_queue.cancel("0" * 32) is Cancelled.UNKNOWN


@in_a_loop
async def test_looking_takes_nothing(whole_queue: Aio) -> None:
    await whole_queue.put_many(["a", "b"])

    assert [message.value for message in await whole_queue.peek(5)] == ["a", "b"]
    first = (await whole_queue.peek())[0]
    found = await whole_queue.inspect(first.id)
    assert found is not None
    assert found.value == "a"
    assert await whole_queue.inspect("0" * 32) is None
    assert (await whole_queue.stats()).ready == await whole_queue.qsize() == 2


@in_a_loop
async def test_operations_are_the_same(whole_queue: Aio) -> None:
    await whole_queue.put("a")
    await whole_queue.pause()
    with pytest.raises(Empty):
        await whole_queue.get_nowait()
    assert (await whole_queue.settings()).paused
    await whole_queue.resume()
    await whole_queue.record_worker_heartbeat("w1")
    message = await whole_queue.get_message()
    await whole_queue.dead_letter(message)

    assert await whole_queue.requeue_dead_letters(delay=0.0) == 1
    await whole_queue.dead_letter(await whole_queue.get_message())
    assert await whole_queue.requeue_dead_letters(0) == 0
    assert await whole_queue.count_dead_letters_older_than(0) == 1
    assert await whole_queue.prune_dead_letters(0) == 1
    await whole_queue.put("b")
    assert await whole_queue.purge() == 1
    assert "dead_lettered" in [event.kind for event in await whole_queue.history(message.id)]
    reader = await whole_queue.register_reader("archive")
    events = await whole_queue.journal(reader.position)
    await whole_queue.commit_reader("archive", events[0].position)
    assert [one.name for one in await whole_queue.readers()] == ["archive"]
    assert await whole_queue.drop_reader("archive")


@in_a_loop
async def test_a_topic_has_awaitable_subscribers(
    whole_store: QueueStore, clock: GatedClock
) -> None:
    topic: Queue = PersistentQueue(
        "news",
        store=whole_store,
        clock=clock,
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=DynamicFanoutSubscriptions(),
    )

    assert await topic.aio.subscribe("audit")
    message = await topic.aio.put("a")
    audit = await topic.aio.subscriber_queue("audit")

    assert await topic.aio.subscribers() == ["audit"]
    assert await topic.aio.subscriber_queue_name("audit") == audit.name == "news.audit"
    assert await audit.get() == message.value
    await audit.task_done()
    assert await topic.aio.unsubscribe("audit")


@in_a_loop
async def test_a_full_queue_refuses_or_waits_as_its_backpressure_says(new_queue: NewQueue) -> None:
    queue = new_queue(maxsize=1).aio
    await queue.put("a")

    assert await queue.full()
    with pytest.raises(Full):
        await queue.put_nowait("b")
    with pytest.raises(Full):
        await queue.put("b", timeout=0.05)
    with pytest.raises(InvalidMessage, match="never fits into a queue of 1"):
        await queue.put_many(["b", "c"])
    rejecting = new_queue("other", backpressure=RejectingBackpressure(1)).aio
    await rejecting.put("a")
    with pytest.raises(Full):
        await rejecting.put("b")


@in_a_loop
async def test_a_throttled_put_pauses_while_others_go_on(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=ThrottlingBackpressure(1, 3600.0)).aio
    await queue.put("a")
    throttled = asyncio.create_task(queue.put("b"))

    await eventually(lambda: has(queue, 2))
    assert not throttled.done()
    await queue.get_messages(2)

    assert (await throttled).value == "b"


@in_a_loop
async def test_under_at_most_once_what_is_got_is_gone(new_queue: NewQueue) -> None:
    queue = new_queue(delivery_policy=AtMostOnceDelivery()).aio
    await queue.put("a")

    assert await queue.get() == "a"

    assert (await queue.stats()).total == 0
    with pytest.raises(InvalidArgument, match="too many times"):
        await queue.task_done()


@in_a_loop
async def test_wrong_arguments_are_refused_in_the_same_words(queue: Aio) -> None:
    blocking: Any = queue.queue
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("put", (object(),)),
        ("put", ("a", True, -1)),
        ("get_messages", (0,)),
        ("get", (True, "soon")),
        ("ack", (5,)),
        ("release", ("0" * 32, -1)),
        ("dead_letters", (-1,)),
        ("put_stream", (["a"], 0)),
        ("put_stream", (5,)),
    ]

    for name, arguments in calls:
        with pytest.raises((InvalidArgument, InvalidMessage, WrongType, TypeError)) as refused:
            getattr(blocking, name)(*arguments)
        with pytest.raises(type(refused.value)) as twin:
            await getattr(queue, name)(*arguments)
        assert str(twin.value) == str(refused.value)


@in_a_loop
async def test_settings_written_elsewhere_warn_where_the_put_was_awaited(
    whole_store: QueueStore,
) -> None:
    mine: Queue = PersistentQueue("jobs", store=whole_store, maxsize=3)
    await mine.aio.put("a")
    await PersistentQueue[str]("jobs", store=whole_store, maxsize=5).aio.put("b")

    with pytest.warns(SettingsOverwritten, match="'maxsize': 5") as caught:
        await mine.aio.put("c")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await mine.aio.put("d")

    assert Path(caught[0].filename).name == Path(__file__).name
    assert await mine.aio.settings() == QueueSettings(maxsize=5)


# --- streams ------------------------------------------------------------------------------------
async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


@in_a_loop
async def test_a_stream_is_put_in_chunks_from_any_kind_of_iterable(queue: Aio) -> None:
    told: list[int] = []

    assert await queue.put_stream(range(5), chunk=2, on_progress=told.append) == 5
    assert await queue.put_stream(numbers(5), chunk=2, on_progress=told.append) == 5
    assert await queue.put_stream([]) == await queue.put_stream(numbers(0)) == 0

    assert told == [2, 4, 5] * 2
    assert [m.value for m in await queue.get_messages(20)] == [0, 1, 2, 3, 4] * 2


@in_a_loop
async def test_an_error_in_a_stream_leaves_the_chunks_before_it(queue: Aio) -> None:
    async def breaks() -> AsyncIterator[int]:
        for number in range(5):
            yield number
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await queue.put_stream(breaks(), chunk=2)

    assert await queue.qsize() == 4


# --- closing ------------------------------------------------------------------------------------
@in_a_loop
async def test_closing_one_face_closes_the_queue(path: Path) -> None:
    async with PersistentQueue[str]("jobs", store_path=path).aio as queue:
        await queue.put("a")

    with pytest.raises(StoreClosed):
        await queue.put("b")
    with pytest.raises(StoreClosed):
        await queue.qsize()
    with pytest.raises(StoreClosed):
        queue.queue.put("b")


@in_a_loop
async def test_a_queue_that_was_closed_before_its_first_call_opens_nothing(path: Path) -> None:
    queue = PersistentQueue[str]("jobs", store_path=path).aio
    await queue.close()
    await queue.close()

    with pytest.raises(StoreClosed, match="queue 'jobs' was closed"):
        await queue.get()

    assert list(path.parent.iterdir()) == []


@in_a_loop
async def test_the_first_call_opens_the_store_though_many_come_at_once(path: Path) -> None:
    async with PersistentQueue[int]("jobs", store_path=path, maxsize=99).aio as queue:
        await asyncio.gather(*(queue.put(number) for number in range(20)))

        assert await queue.qsize() == 20
        assert (await queue.settings()).maxsize == 99
