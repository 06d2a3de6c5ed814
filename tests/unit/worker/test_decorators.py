"""What the decorated functions are, and what only one of the two kinds can show."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from typing import Any

import pytest
from tenacity import wait_none

from localqueue import PersistentQueue
from localqueue.worker import persistent_async_worker, persistent_worker
from localqueue.workers.context import current_message

Queue = PersistentQueue[Any]


def test_a_decorated_function_keeps_its_name_documentation_and_signature(queue: Queue) -> None:
    @persistent_worker(queue)
    def handle(payload: dict[str, Any], *, fast: bool = False) -> None:
        """Handle a payload."""

    @persistent_async_worker(queue)
    async def handle_async(payload: dict[str, Any], *, fast: bool = False) -> None:
        """Handle a payload."""

    for function in (handle, handle_async):
        assert function.__name__.startswith("handle")
        assert function.__doc__ == "Handle a payload."
        assert list(inspect.signature(function).parameters) == ["payload", "fast"]
    assert inspect.iscoroutinefunction(handle_async)
    assert not inspect.iscoroutinefunction(handle)


def test_a_handler_that_raises_StopIteration_fails_like_any_other(  # noqa: N802
    queue: Queue,
) -> None:
    @persistent_worker(queue, max_tries=2, wait=wait_none())
    def handle(value: Any) -> None:
        raise StopIteration

    put = queue.put("job")

    with pytest.raises(StopIteration):
        handle()  # type: ignore[call-arg]

    dead = queue.inspect(put.id)
    assert dead is not None
    assert dead.failures == 2


def test_threads_that_share_a_worker_handle_each_message_once(queue: Queue) -> None:
    queue.put_many(range(60))
    handled: list[int] = []

    @persistent_worker(queue)
    def handle(value: int) -> None:
        assert current_message().message.value == value
        handled.append(value)

    def run() -> None:
        for _ in range(15):
            handle()  # type: ignore[call-arg]

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(handled) == list(range(60))


def test_tasks_wait_without_threads_and_keep_their_own_message(queue: Queue) -> None:
    tasks = 50
    before = threading.active_count()  # helpers of others stay for a while

    @persistent_async_worker(queue)
    async def handle(value: int) -> int:
        await asyncio.sleep(0)
        assert current_message().message.value == value
        return value

    async def run() -> tuple[int, list[int]]:
        waiting = [asyncio.create_task(handle()) for _ in range(tasks)]  # type: ignore[call-arg]
        await asyncio.sleep(0.2)  # until all of them wait
        threads = threading.active_count()
        await queue.aio.put_many(range(tasks))
        return threads, await asyncio.gather(*waiting)

    threads, results = asyncio.run(run())

    assert sorted(results) == list(range(tasks))
    assert (
        threads - before < 40
    )  # helper threads of calls that have ended, at most; none per waiting task


def test_cancelling_a_task_releases_its_message_at_once_and_charges_nothing(queue: Queue) -> None:
    put = queue.put("job")

    @persistent_async_worker(queue, max_tries=3)
    async def handle(value: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    async def run() -> None:
        task = asyncio.create_task(handle())  # type: ignore[call-arg]
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    began = asyncio.Event()
    asyncio.run(run())

    released = queue.inspect(put.id)
    assert released is not None
    assert (released.state, released.failures) == ("ready", 0)


def test_a_cancellation_that_the_handler_made_up_is_a_failure(queue: Queue) -> None:
    put = queue.put("job")

    @persistent_async_worker(queue, max_tries=2, wait=wait_none())
    async def handle(value: Any) -> None:
        raise asyncio.CancelledError

    async def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            await handle()  # type: ignore[call-arg]

    asyncio.run(run())

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (dead.state, dead.failures) == ("dead", 2)


def test_a_coroutine_that_is_closed_gives_its_message_back(queue: Queue) -> None:
    put = queue.put("job")

    @persistent_async_worker(queue)
    async def handle(value: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    async def run() -> None:
        coroutine: Any = handle()  # type: ignore[call-arg]
        while not began.is_set():
            # What a task does, by hand: only so the coroutine can be closed where it stands.
            future = coroutine.send(None)
            if future is None:
                await asyncio.sleep(0)
            else:
                future._asyncio_future_blocking = False
                if not began.is_set():
                    await asyncio.wait({future})
        leased = queue.inspect(put.id)
        assert leased is not None
        assert leased.state == "inflight"
        coroutine.close()

    began = asyncio.Event()
    asyncio.run(run())

    released = queue.inspect(put.id)
    assert released is not None
    assert released.state == "ready"


def test_a_timeout_around_a_call_loses_no_message(queue: Queue) -> None:
    @persistent_async_worker(queue)
    async def handle(value: Any) -> Any:
        return value

    async def run() -> Any:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await handle()  # type: ignore[call-arg]
        await queue.aio.put("job")
        return await handle()  # type: ignore[call-arg]

    assert asyncio.run(run()) == "job"


def test_rules_and_callbacks_of_an_async_worker_may_be_coroutine_functions(queue: Queue) -> None:
    queue.put("job")
    calls: list[Any] = []

    async def only_key_errors(state: Any) -> bool:
        await asyncio.sleep(0)
        return state.outcome.failed and isinstance(state.outcome.exception(), KeyError)

    async def note(state: Any) -> None:
        calls.append(state.attempt_number)

    @persistent_async_worker(queue, retry=only_key_errors, before_sleep=note, wait=wait_none())
    async def handle(value: Any) -> Any:
        if len(calls) < 2:
            raise KeyError
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        asyncio.run(handle())  # type: ignore[call-arg]

    assert calls == [1, 2]
    assert queue.stats().dead == 1


def test_a_wrapper_of_a_coroutine_function_may_be_an_async_workers_handler(queue: Queue) -> None:
    async def handle(value: Any) -> Any:
        return value

    @functools.wraps(handle)
    def wrapper(*args: Any) -> Any:
        return handle(*args)

    queue.put("job")
    work: Any = persistent_async_worker(queue)(wrapper)

    assert asyncio.run(work()) == "job"
