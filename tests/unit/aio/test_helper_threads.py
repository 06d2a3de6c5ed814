"""Helper threads: as many as allowed, as long as there is work."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from localqueue.stores.helper_threads import HelperThreads
from tests.unit.aio.phrases import PATIENCE


class Listener:
    """Remembers what became of a call."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._wanted = wanted
        self.answer: Any = None
        self.error: BaseException | None = None
        self.over = threading.Event()

    def taken(self) -> bool:
        return self._wanted

    def finished(self, call: Any) -> None:
        self.answer, self.error = call.answer, call.error

    def tell(self) -> None:
        self.over.set()


def test_a_call_has_its_answer_or_its_error() -> None:
    threads = HelperThreads("test")
    listeners = [Listener() for _ in range(2)]

    threads.submit(threading.get_ident, listeners[0])
    threads.submit(lambda: 1 / 0, listeners[1])

    assert all(listener.over.wait(PATIENCE) for listener in listeners)
    assert listeners[0].answer != threading.get_ident()
    assert isinstance(listeners[1].error, ZeroDivisionError)


def test_a_call_that_was_withdrawn_does_not_run() -> None:
    threads = HelperThreads("test")
    ran: list[str] = []
    withdrawn, kept = Listener(wanted=False), Listener()

    threads.submit(lambda: ran.append("withdrawn"), withdrawn)
    threads.submit(lambda: ran.append("kept"), kept)

    assert withdrawn.over.wait(PATIENCE)
    assert kept.over.wait(PATIENCE)
    assert ran == ["kept"]


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_threads_run_than_are_allowed(most: int) -> None:
    name = f"test-at-most-{most}"
    threads = HelperThreads(name, most)
    gate, listeners = threading.Event(), [Listener() for _ in range(6)]

    for listener in listeners:
        threads.submit(lambda: gate.wait(PATIENCE), listener)
    running = [thread for thread in threading.enumerate() if thread.name == name]
    gate.set()

    assert all(listener.over.wait(PATIENCE) for listener in listeners)
    assert len(running) == most
    assert all(thread.daemon for thread in running), "a process does not wait for them"


def test_one_thread_takes_calls_in_the_order_they_came() -> None:
    threads = HelperThreads("test")
    ran: list[int] = []
    listeners = [Listener() for _ in range(50)]

    for number, listener in enumerate(listeners):
        threads.submit(partial(ran.append, number), listener)

    assert listeners[-1].over.wait(PATIENCE)
    assert ran == list(range(50))


def test_a_thread_without_work_ends_and_the_next_call_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("localqueue.stores.helper_threads.LINGER", 0.01)
    threads = HelperThreads("test-ends")
    found: list[threading.Thread] = []

    for _ in range(2):
        listener = Listener()
        threads.submit(lambda: found.append(threading.current_thread()), listener)
        assert listener.over.wait(PATIENCE)
        found[-1].join(PATIENCE)

    assert found[0] is not found[1]
    assert not any(thread.is_alive() for thread in found)
