"""A gate closes when the last call is out."""

from __future__ import annotations

import threading

from localqueue.adapters.gate import Gate

PATIENCE = 10.0


def test_an_open_gate_lets_calls_in() -> None:
    gate = Gate()

    assert gate.enter()
    assert not gate.closed


def test_a_closed_gate_lets_nobody_in() -> None:
    gate = Gate()

    assert gate.close()

    assert gate.closed
    assert not gate.enter()


def test_closing_waits_for_the_calls_of_other_threads() -> None:
    gate = Gate()
    inside, finish = threading.Event(), threading.Event()

    def call() -> None:
        gate.enter()
        inside.set()
        finish.wait(PATIENCE)
        gate.leave()

    running = threading.Thread(target=call)
    running.start()
    assert inside.wait(PATIENCE)

    assert not gate.close(timeout=0)
    assert not gate.enter()

    finish.set()
    assert gate.close(timeout=PATIENCE)
    running.join(PATIENCE)


def test_closing_does_not_wait_for_the_closing_threads_own_calls() -> None:
    gate = Gate()
    gate.enter()
    gate.enter()

    assert gate.close(timeout=PATIENCE)

    gate.leave()
    gate.leave()


def test_a_thread_is_inside_until_its_last_nested_call_is_out() -> None:
    gate = Gate()
    nested, finish = threading.Event(), threading.Event()

    def call() -> None:
        gate.enter()
        gate.enter()
        gate.leave()
        nested.set()
        finish.wait(PATIENCE)
        gate.leave()

    running = threading.Thread(target=call)
    running.start()
    assert nested.wait(PATIENCE)

    assert not gate.close(timeout=0)

    finish.set()
    running.join(PATIENCE)
    assert gate.close(timeout=0)
