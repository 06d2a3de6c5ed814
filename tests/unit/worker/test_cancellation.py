"""A task that is cancelled leaves nothing halfway."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from localqueue import MemoryQueueStore, PersistentQueue
from localqueue.commits.protocol import Extras, Run
from localqueue.worker import lease_watch, persistent_async_worker
from localqueue.worker.lease_watch import Visit, retire_watches, watch_over
from tests.unit.worker.own_commit import Message, OwnCommit, committing

Queue = PersistentQueue[Any]

pytestmark = pytest.mark.filterwarnings("ignore::localqueue.CompatibilityWarning")


class SlowCommit(OwnCommit):
    """Takes its time at one step, until it is let go."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.steps: list[str] = []

    def begin(self, message: Message) -> Run:
        self.pass_by("begin")
        return Run()

    def success(self, message: Message, result: Any) -> Extras:
        self.pass_by("success")
        return super().success(message, result)

    def settled(self, message: Message) -> None:
        self.pass_by("settled")

    def dropped(self, message: Message) -> None:
        self.steps.append("dropped")

    def pass_by(self, step: str) -> None:
        if step == self.step:
            self.reached.set()
            assert self.go_on.wait(30)
        self.steps.append(step)


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


@pytest.mark.parametrize("step", ["success", "settled"])
def test_whoever_is_cancelled_after_the_handler_returned_hears_of_it_after_the_ack(
    step: str,
) -> None:
    commit = SlowCommit(step)
    queue = committing(commit)
    put = queue.put("job", dedupe_key="a")

    @persistent_async_worker(queue)
    async def handle(value: str) -> None: ...

    async def main() -> None:
        task = asyncio.create_task(handle())  # type: ignore[call-arg]
        await until(commit.reached)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        commit.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert commit.steps == ["begin", "success", "settled"]
    assert queue.inspect(put.id) is None


def test_a_loop_that_ends_with_all_its_tasks_waits_for_a_success_that_is_written() -> None:
    commit = SlowCommit("success")
    queue = committing(commit)
    put = queue.put("job", dedupe_key="a")

    @persistent_async_worker(queue)
    async def handle(value: str) -> None: ...

    async def main() -> None:
        background = asyncio.create_task(handle())  # type: ignore[call-arg]
        await until(commit.reached)
        asyncio.get_running_loop().call_soon(lambda: threading.Timer(0.1, commit.go_on.set).start())
        assert not background.done()

    asyncio.run(main())  # cancels what is left

    assert commit.steps == ["begin", "success", "settled"]
    assert queue.inspect(put.id) is None


def test_whoever_is_cancelled_before_the_handler_gives_back_what_no_thread_works_on() -> None:
    commit = SlowCommit("begin")
    queue = committing(commit)
    put = queue.put("job", dedupe_key="a")

    @persistent_async_worker(queue)
    async def handle(value: str) -> None:
        pytest.fail("it ran")

    async def main() -> None:
        task = asyncio.create_task(handle())  # type: ignore[call-arg]
        await until(commit.reached)
        task.cancel()
        await asyncio.sleep(0.01)
        assert queue.stats().inflight == 1
        commit.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert commit.steps == ["begin", "dropped"]
    released = queue.inspect(put.id)
    assert released is not None
    assert (released.state, released.failures) == ("ready", 0)


def test_a_timeout_around_a_call_is_one_although_its_success_is_written_first() -> None:
    commit = SlowCommit("success")
    queue = committing(commit)
    queue.put("job", dedupe_key="a")

    @persistent_async_worker(queue)
    async def handle(value: str) -> None: ...

    async def main() -> None:
        threading.Timer(0.2, commit.go_on.set).start()
        async with asyncio.timeout(0.05):
            await handle()  # type: ignore[call-arg]

    with pytest.raises(TimeoutError):
        asyncio.run(main())

    assert queue.stats().total == 0


def test_a_failure_that_comes_after_the_cancellation_is_charged() -> None:
    class Failing(SlowCommit):
        def success(self, message: Message, result: Any) -> Extras:
            super().success(message, result)
            raise OSError("away")

    commit = Failing("success")
    queue = committing(commit)
    put = queue.put("job", dedupe_key="a")

    @persistent_async_worker(queue, max_tries=1)
    async def handle(value: str) -> None: ...

    async def main() -> None:
        task = asyncio.create_task(handle())  # type: ignore[call-arg]
        await until(commit.reached)
        task.cancel()
        await asyncio.sleep(0)
        commit.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (dead.state, dead.failures) == ("dead", 1)


class SlowToEnter(MemoryQueueStore):
    """The watch over it starts slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    @property
    def run_folder(self) -> Path | None:  # type: ignore[override]
        self.reached.set()
        assert self.go_on.wait(30)
        return None


def test_whoever_is_cancelled_while_the_watch_starts_does_not_stay_in_it() -> None:
    store = SlowToEnter()
    queue: Queue = PersistentQueue("jobs", store=store)

    @persistent_async_worker(queue)
    async def handle(value: str) -> None: ...

    async def main() -> None:
        task = asyncio.create_task(handle())  # type: ignore[call-arg]
        await until(store.reached)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    store.go_on.set()
    _, when = queue._opened()
    watch = watch_over(store, when, queue.lease_timeout)
    deadline = time.monotonic() + 30
    while (not watch.is_running or watch._users) and time.monotonic() < deadline:
        time.sleep(0.01)
    retire_watches()

    assert not watch.is_running


def test_a_visit_is_left_once_however_often_and_whenever_that_is_said(queue: Queue) -> None:
    store, when = queue._opened()
    watch = watch_over(store, when, queue.lease_timeout)
    over, under_way = Visit(watch), Visit(watch)
    over.leave()
    over.enter()
    under_way.enter()

    retire_watches()
    assert watch.is_running
    for _ in range(2):
        under_way.leave()
    retire_watches()

    assert not watch.is_running
    assert watch not in lease_watch._running
