"""A worker in a process of its own is told to stop, and loses nothing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import ConfigurationError
from localqueue.queue import PersistentQueue
from localqueue.workers.context import current_message
from localqueue.workers.shutdown import GivenUp, Shutdown, Signals
from localqueue.workers.worker import Worker
from tests.unit.workers.acts import PATIENCE
from tests.unit.workers.phrases import Stage, eventually

ROOT = Path(__file__).parents[3]
KINDS = ["thread", "asyncio", "run_async"]


@contextmanager
def program(
    stage: Stage, kind: str, concurrency: int = 1, drain_timeout: float = 30.0, prefetch: int = 100
) -> Iterator[subprocess.Popen[str]]:
    arguments = [str(stage.store.path), kind, concurrency, drain_timeout, prefetch]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.workers.program", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def signals_of_a_new_program() -> Iterator[None]:
    """What ran before in this process may have claimed some: pyspark takes SIGINT and keeps it."""
    new: dict[int, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    before = {number: signal.signal(number, handler) for number, handler in new.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def said(process: subprocess.Popen[str]) -> str:
    return said_and_logged(process)[0]


def said_and_logged(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    output, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log
    return output.strip(), log.splitlines()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_end_and_gives_the_rest_back(
    stage: Stage, kind: str, number: int
) -> None:
    queue, gate = stage.queue(), stage.gate()
    queue.put(stage.act(name="running", until=gate, listens=False))
    queue.put(stage.act(name="waiting"))

    with program(stage, kind) as process:
        eventually(lambda: stage.names("began"))
        process.send_signal(number)
        gate.touch()
        output = said(process)

    assert "'done': 1" in output
    assert stage.names() == ["running"]
    assert (queue.stats().ready, queue.stats().inflight) == (1, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_does_not_end_before_the_deadline_is_given_back(
    stage: Stage, kind: str, concurrency: int
) -> None:
    queue = stage.queue()
    message = queue.put(stage.act(until=stage.gate("never"), listens=False))

    with program(stage, kind, concurrency, drain_timeout=0.2) as process:
        eventually(lambda: stage.names("began"))
        process.send_signal(signal.SIGTERM)
        output = said(process)

    found = queue.inspect(message.id)
    assert output == "{'released': 1}"
    assert found is not None
    assert (found.state, found.failures, found.crashes) == ("ready", 0, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_second_signal_stops_at_once(stage: Stage, kind: str, concurrency: int) -> None:
    queue = stage.queue()
    message = queue.put(stage.act(until=stage.gate("never"), listens=False))
    too_late = stage.act(name="too late")

    with program(stage, kind, concurrency, drain_timeout=3600.0) as process:
        eventually(lambda: stage.names("began"))
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        # Two that come together may be heard as one.
        threading.Timer(1.0, process.send_signal, [signal.SIGTERM]).start()
        output = said(process)
        queue.put(too_late)

    found = queue.inspect(message.id)
    assert output == "{'released': 1}"
    assert found is not None
    assert (found.state, found.failures, found.crashes) == ("ready", 0, 0)
    assert stage.names() == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_worker_ends_with_a_signal(stage: Stage, kind: str) -> None:
    queue = stage.queue()
    queue.put(stage.act(name="seen"))

    with program(stage, kind) as process:
        eventually(lambda: stage.names() == ["seen"])
        eventually(lambda: queue.stats().total == 0)
        process.send_signal(signal.SIGTERM)
        output = said(process)

    assert output == "{'done': 1}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_put_of_another_process_wakes_a_worker(stage: Stage, kind: str) -> None:
    queue = stage.queue()

    with program(stage, kind) as process:
        eventually(lambda: "program" in queue.stats().last_seen_by_worker_id)
        for name in range(3):
            queue.put(stage.act(name=name))
            eventually(lambda: len(stage.names()) == name + 1)  # noqa: B023 - called right here
        process.send_signal(signal.SIGTERM)
        said(process)

    assert stage.names() == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_worker_is_charged_for_what_it_ran_and_for_nothing_else(
    stage: Stage, kind: str
) -> None:
    queue = stage.queue()
    queue.put_many([stage.act(name=n) for n in range(5)])
    poison = queue.put(stage.act("abort"))
    innocent = queue.put_many([stage.act(name=f"innocent {n}") for n in range(20)])
    crashes: dict[str, int] = {}

    def handler(value: Any) -> None:
        message = current_message().message
        crashes[message.id] = message.crashes

    with program(stage, kind) as process:
        process.wait(PATIENCE)
    # Another worker of this host finds the dead one, long before the lease of 30 seconds ends.
    with Worker(queue, handler):
        eventually(lambda: queue.stats().total == 0)

    assert crashes[poison.id] == 1
    assert [crashes[message.id] for message in innocent] == [0] * 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_log_says_what_a_stop_waits_for_and_what_the_second_signal_gave_back(
    stage: Stage, kind: str, concurrency: int
) -> None:
    queue = stage.queue()
    never = stage.gate("never")
    running = [queue.put(stage.act(name=n, until=never, listens=False)) for n in range(concurrency)]

    with program(stage, kind, concurrency) as process:
        assert process.stderr is not None
        eventually(lambda: len(stage.names("began")) == concurrency)
        process.send_signal(signal.SIGTERM)
        first = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, log = said_and_logged(process)

    whom = "1 handler; a second signal gives it" if concurrency == 1 else "2 handlers; a second"
    assert f"SIGTERM: stopping, waiting up to 30 s for {whom}" in first
    assert sorted(log) == sorted(
        f"message {message.id} of 'jobs' was not done when the worker stopped, and is given back"
        for message in running
    )


@pytest.mark.usefixtures("signals_of_a_new_program")
def test_a_worker_on_a_loop_leaves_claimed_signals_alone_and_puts_the_others_back(
    stage: Stage,
) -> None:
    queue = stage.queue()
    queue.put(1)
    seen: list[Any] = []

    async def handler(value: Any) -> None:
        seen.append([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)])

    async def main(**options: Any) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        queue.put(2)
        await Worker(queue, handler).run_async(until_empty=True, **options)
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
        seen.append(before)

    async def claims() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
        await main()

    asyncio.run(main(handle_signals=False))
    assert seen[0] == seen[-1]
    seen.clear()
    asyncio.run(main())
    assert all(heard != before for heard, before in zip(seen[0], seen[-1], strict=True))
    seen.clear()
    asyncio.run(claims())
    assert [heard == before for heard, before in zip(seen[0], seen[-1], strict=True)] == [
        True,
        False,
    ]


def test_a_worker_on_a_loop_of_another_thread_cannot_be_asked_to_hear_signals(
    stage: Stage,
) -> None:
    queue = stage.queue()

    async def handler(value: Any) -> None:
        """Handles it."""

    def run(**options: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            worker = Worker(queue, handler)
            return pool.submit(
                lambda: asyncio.run(worker.run_async(until_empty=True, **options))
            ).result()

    with pytest.raises(ConfigurationError, match="main thread"):
        run(handle_signals=True)
    assert run().done == 0


def test_the_signal_handlers_of_before_are_put_back(stage: Stage) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    Worker(stage.queue(), lambda value: None).run(until_empty=True)

    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_worker_outside_the_main_thread_leaves_signals_alone(stage: Stage) -> None:
    heard: list[Any] = []

    def handler(value: Any) -> None:
        heard.append(signal.getsignal(signal.SIGTERM))

    queue = stage.queue()
    queue.put(1)
    with Worker(queue, handler):
        eventually(lambda: heard)

    assert heard == [signal.getsignal(signal.SIGTERM)]


def test_queues_of_one_file_and_two_stores_share_a_worker(stage: Stage) -> None:
    path = stage.store.path
    with (
        PersistentQueue[Any]("one", store_path=path) as one,
        PersistentQueue[Any]("two", store_path=path) as two,
    ):
        one.put(1)
        two.put(2)
        seen: list[Any] = []

        Worker([one, two], seen.append).run(until_empty=True)

    assert sorted(seen) == [1, 2]


# --- a handler in the main thread that is poked -------------------------------------------------
def stuck(shutdown: Shutdown) -> Signals:
    signals = Signals(shutdown)
    signals.interrupt_if(lambda: True, lambda: True)
    return signals


def test_a_signal_that_comes_together_with_a_poke_is_heard() -> None:
    shutdown = Shutdown(30.0)
    signals = stuck(shutdown)

    def both_while_nothing_is_heard() -> None:
        numbers = {signal.SIGTERM, signal.SIGURG}
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            signals.poke()
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    with signals.installed(), pytest.raises(GivenUp):
        both_while_nothing_is_heard()

    assert shutdown.asked
    assert shutdown.signal is signal.SIGTERM


def test_a_poke_does_not_take_away_the_signal_that_is_being_heard() -> None:
    class PokedWhenAsked(Shutdown):
        @property
        def asked(self) -> bool:
            signals.poke()
            return super().asked

    shutdown = PokedWhenAsked(30.0)
    signals = stuck(shutdown)

    with signals.installed():
        signal.raise_signal(signal.SIGTERM)

    assert shutdown.deadline is not None


def test_a_poke_stops_no_worker_and_nobody_hears_it_afterwards() -> None:
    shutdown, heard = Shutdown(30.0), list[int]()
    signals = Signals(shutdown)
    before = signal.signal(signal.SIGURG, lambda number, frame: heard.append(number))
    try:
        with signals.installed():
            signals.poke()
        signals.poke()
        assert heard == []
        signal.raise_signal(signal.SIGURG)
        assert heard == [signal.SIGURG], "its own handler is back"
    finally:
        signal.signal(signal.SIGURG, before)

    assert not shutdown.asked
