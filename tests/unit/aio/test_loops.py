"""Several loops, loops that end, and processes that are interrupted or fork."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import QueueStore
from tests.unit.aio.phrases import PATIENCE, Aio, in_a_loop, settled


def test_one_queue_serves_the_loops_of_several_threads(store: QueueStore) -> None:
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
    got: list[Any] = []

    async def work(name: int) -> None:
        for number in range(10):
            await queue.aio.put(f"{name} {number}")
            got.append(await queue.aio.get())
            await queue.aio.task_done()

    threads = [
        threading.Thread(target=lambda name=name: asyncio.run(work(name)), daemon=True)
        for name in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert len(got) == len(set(got)) == 40
    assert queue.stats().total == 0


def test_a_queue_goes_on_in_the_next_loop(store: QueueStore) -> None:
    queue = PersistentQueue[int]("jobs", store=store).aio

    for number in range(3):
        asyncio.run(queue.put(number))

    assert [asyncio.run(queue.get()) for _ in range(3)] == [0, 1, 2]


def test_a_loop_that_ends_leaves_its_messages_to_the_next(store: QueueStore) -> None:
    """The tasks that wait are cancelled by the end of their loop."""
    queue = PersistentQueue[int]("jobs", store=store).aio

    async def leave_some_waiting() -> None:
        for _ in range(5):
            waiting = asyncio.create_task(queue.get())
            waiting.add_done_callback(lambda _: None)
        await settled()

    for _ in range(3):
        asyncio.run(leave_some_waiting())
    asyncio.run(queue.put(17))

    assert asyncio.run(queue.get(timeout=PATIENCE)) == 17


@in_a_loop
async def test_a_loop_that_ended_in_the_middle_of_a_call_leases_nothing_for_ever(
    queue: Aio,
) -> None:
    await queue.put("a")

    def begin_and_leave() -> None:
        loop = asyncio.new_event_loop()
        get = loop.create_task(queue.get())
        loop.call_soon(loop.stop)
        loop.run_forever()
        get.cancel()
        loop.run_until_complete(asyncio.gather(get, return_exceptions=True))
        loop.close()

    await asyncio.to_thread(begin_and_leave)

    # The clock of the test stands still: no lease ends by itself.
    assert await queue.get() == "a"


PROGRAM = """
    import asyncio, sys
    from localqueue import PersistentQueue

    async def main():
        queue = PersistentQueue("jobs", store_path=sys.argv[1]).aio
        await queue.put("a")
        message = await queue.get_message()
        waiting = [asyncio.create_task(queue.get()) for _ in range(20)]
        await asyncio.sleep(0.1)
        print("ready", flush=True)
        {end}

    asyncio.run(main())
"""


def started(end: str, path: Path) -> subprocess.Popen[str]:
    program = textwrap.dedent(PROGRAM.format(end=end))
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_process_ends_though_tasks_wait(path: Path) -> None:
    with started("return", path) as process:
        out, error = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out, error) == (0, "ready\n", "")


def test_an_interrupt_ends_a_process_whose_tasks_wait(path: Path) -> None:
    with started("await asyncio.gather(*waiting)", path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)

    assert process.returncode != 0
    assert error.rstrip().endswith("KeyboardInterrupt")
    with PersistentQueue[str]("jobs", store_path=path) as queue:
        assert queue.stats().inflight == 1


def test_a_forked_child_has_helper_threads_of_its_own(path: Path) -> None:
    program = """
        import asyncio, os, sys
        from localqueue import PersistentQueue
        queue = PersistentQueue("jobs", store_path=sys.argv[1])

        async def work(name):
            await queue.aio.put(name)
            await queue.aio.stats()
            return await queue.aio.qsize()

        asyncio.run(work("before"))
        child = os.fork()
        if child == 0:
            asyncio.run(work("child"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert asyncio.run(work("parent")) == 3
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
