"""Tasks that wait for a message or for room: what wakes them, and what they cost."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest

from localqueue.clock import SYSTEM_CLOCK
from localqueue.errors import StoreClosed
from localqueue.queue import PersistentQueue
from tests.unit.aio.phrases import (
    Aio,
    GatedClock,
    NewQueue,
    WatchedSQLiteStore,
    WatchedStore,
    asleep,
    eventually,
    has,
    in_a_loop,
    settled,
)

pytestmark = pytest.mark.usefixtures("only_signals_wake")


@in_a_loop
async def test_a_put_of_another_task_wakes_a_get(queue: Aio, store: WatchedStore) -> None:
    get = asyncio.create_task(queue.get())
    await asleep(store, get)

    await queue.put("a")

    assert await get == "a"


@in_a_loop
async def test_a_put_of_a_thread_wakes_a_get(queue: Aio, store: WatchedStore) -> None:
    get = asyncio.create_task(queue.get())
    await asleep(store, get)

    await asyncio.to_thread(queue.queue.put, "a")

    assert await get == "a"


@in_a_loop
async def test_a_put_of_a_task_wakes_a_thread(queue: Aio, store: WatchedStore) -> None:
    get = asyncio.create_task(asyncio.to_thread(queue.queue.get))
    await asleep(store, get)

    await queue.put("a")

    assert await get == "a"


@in_a_loop
async def test_a_put_of_another_process_wakes_a_get(path: Path) -> None:
    store = WatchedSQLiteStore(path)
    async with PersistentQueue[str]("jobs", store=store).aio as queue:
        get = asyncio.create_task(queue.get())
        await asleep(store, get)

        program = "import sys; from localqueue import PersistentQueue as Q; "
        program += "Q('jobs', store_path=sys.argv[1]).put('from afar')"
        command = [sys.executable, "-c", program, str(path)]
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)

        assert await get == "from afar"
    store.close()


@in_a_loop
async def test_each_message_wakes_one_of_those_who_wait(queue: Aio, store: WatchedStore) -> None:
    gets = [asyncio.create_task(queue.get()) for _ in range(8)]
    await asleep(store, *gets)

    await queue.put_many(range(3))
    for number in range(3, 8):
        await queue.put(number)

    assert sorted(await asyncio.gather(*gets)) == list(range(8))


@in_a_loop
async def test_a_batch_takes_what_is_there_and_does_not_wait_for_more(
    queue: Aio, store: WatchedStore
) -> None:
    get = asyncio.create_task(queue.get_messages(10))
    await asleep(store, get)

    await queue.put("only")

    assert [message.value for message in await get] == ["only"]


@in_a_loop
async def test_a_delayed_message_wakes_a_get_when_it_is_due(new_queue: NewQueue) -> None:
    queue = new_queue(clock=SYSTEM_CLOCK).aio
    put = await queue.put("later", delay=0.3)

    await queue.get_message()

    assert time.time() >= put.available_at


@in_a_loop
async def test_it_waits_as_long_as_it_may_and_then_raises_empty(queue: Aio) -> None:
    await queue.empty()
    began = time.monotonic()

    with pytest.raises(Empty):
        await queue.get(timeout=0.2)

    assert time.monotonic() - began >= 0.2


@in_a_loop
async def test_a_get_makes_room_for_those_who_wait_to_put(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue = new_queue(maxsize=1).aio
    await queue.put(0)
    puts = [asyncio.create_task(queue.put(number)) for number in (1, 2, 3)]
    await asleep(store, *puts)

    got = [await queue.get() for _ in range(4)]

    assert sorted(got) == [0, 1, 2, 3]
    await asyncio.gather(*puts)


@in_a_loop
async def test_closing_the_store_ends_the_wait(path: Path) -> None:
    store = WatchedSQLiteStore(path)
    queue = PersistentQueue[str]("jobs", store=store).aio
    get = asyncio.create_task(queue.get())
    await asleep(store, get)

    await asyncio.to_thread(store.close)

    with pytest.raises(StoreClosed):
        await get


@in_a_loop
async def test_those_who_wait_have_no_threads(whole_queue: Aio, whole_store: WatchedStore) -> None:
    await whole_queue.empty()
    before = threading.active_count()

    gets = [asyncio.create_task(whole_queue.get(timeout=30)) for _ in range(200)]
    await asleep(whole_store, *gets)
    threads = threading.active_count() - before
    await whole_queue.put_many(range(200))

    assert sorted(await asyncio.gather(*gets)) == list(range(200))
    assert threads <= 3, "one to write, one to read, one that was there for the first call"


# --- the loop goes on ---------------------------------------------------------------------------
@in_a_loop
async def test_the_loop_goes_on_while_the_store_is_busy(queue: Aio, clock: GatedClock) -> None:
    await queue.put("before")
    clock.shut()
    call = asyncio.create_task(queue.put("a"))
    await clock.reached()

    await settled()
    assert not call.done()

    clock.open()
    assert (await call).value == "a"


BLOCKING = {"execute", "executemany", "executescript", "fdatasync", "fsync", "flock", "sleep"}


@contextlib.contextmanager
def called_by_this_thread() -> Iterator[set[str]]:
    """The names of the functions in C that are called inside."""
    called: set[str] = set()

    def watch(_frame: object, event: str, function: object) -> None:
        if event == "c_call":
            called.add(getattr(function, "__name__", ""))

    sys.setprofile(watch)
    try:
        yield called
    finally:
        sys.setprofile(None)


@in_a_loop
async def test_the_loop_runs_no_sql_no_lock_of_a_file_and_no_sync(path: Path) -> None:
    store = WatchedSQLiteStore(path)
    queue = PersistentQueue[object]("jobs", store=store, maxsize=3).aio
    with called_by_this_thread() as called:
        get = asyncio.create_task(queue.get())
        await asleep(store, get)
        await queue.put("a")
        await get
        await queue.task_done()
        await queue.put_many(range(3))
        put = asyncio.create_task(queue.put("more"))
        await eventually(lambda: has(queue, 3))
        leased = await queue.get_messages(2)
        await put
        await queue.release(leased[0])
        await queue.ack(leased[1])
        await queue.stats()
        await queue.purge()
        await queue.put_stream(range(1))
        await queue.close()
        await asyncio.to_thread(store.close)

    assert called & BLOCKING == set()


def test_a_call_that_blocks_its_thread_is_seen_to_do_so(path: Path) -> None:
    queue = PersistentQueue[str]("jobs", store_path=path)

    with called_by_this_thread() as called:
        queue.put("a")
    queue.close()

    assert {"execute", "fdatasync", "flock"} <= called
