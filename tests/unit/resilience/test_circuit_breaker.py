from __future__ import annotations

import asyncio
import threading

import pytest

from localqueue.errors import InvalidArgument, WrongType
from localqueue.resilience import Circuit, CircuitBreaker, CircuitState


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def circuit(clock: HandClock) -> Circuit:
    return CircuitBreaker(failures=3, cooldown=10).circuit(clock)


def fail(circuit: Circuit, times: int) -> None:
    for _ in range(times):
        assert circuit.allow()
        circuit.failed()


def test_it_opens_with_the_last_failure_in_a_row_and_not_before(circuit: Circuit) -> None:
    states = []
    for _ in range(3):
        fail(circuit, 1)
        states.append(circuit.state)

    assert states == [CircuitState.CLOSED, CircuitState.CLOSED, CircuitState.OPEN]
    assert not circuit.allow()
    assert circuit.delay() == 10.0


def test_a_success_between_failures_starts_the_count_anew(circuit: Circuit) -> None:
    fail(circuit, 2)
    circuit.succeeded()
    fail(circuit, 2)

    assert circuit.state is CircuitState.CLOSED
    assert circuit.failures == 2


def test_after_the_cooldown_one_trial_is_let_through_at_a_time(
    circuit: Circuit, clock: HandClock
) -> None:
    fail(circuit, 3)
    clock.advance(10)

    assert circuit.state is CircuitState.HALF_OPEN
    assert circuit.delay() == 0.0
    assert circuit.allow()
    assert not circuit.allow()
    assert circuit.delay() > 0


def test_a_trial_that_succeeds_closes_the_circuit(circuit: Circuit, clock: HandClock) -> None:
    fail(circuit, 3)
    clock.advance(10)
    circuit.allow()

    circuit.succeeded()

    assert circuit.state is CircuitState.CLOSED
    fail(circuit, 2)
    assert circuit.state is CircuitState.CLOSED


def test_a_trial_that_fails_starts_the_cooldown_anew(circuit: Circuit, clock: HandClock) -> None:
    fail(circuit, 3)
    clock.advance(12)
    fail(circuit, 1)

    assert circuit.state is CircuitState.OPEN
    assert circuit.delay() == 10.0


def test_a_trial_that_says_nothing_lets_another_one_through(
    circuit: Circuit, clock: HandClock
) -> None:
    fail(circuit, 3)
    clock.advance(10)
    circuit.allow()

    circuit.abandoned()

    assert circuit.state is CircuitState.HALF_OPEN
    assert circuit.allow()


def test_failures_of_what_ran_already_do_not_prolong_the_cooldown(
    circuit: Circuit, clock: HandClock
) -> None:
    fail(circuit, 3)
    clock.advance(6)

    circuit.failed()

    assert circuit.delay() == 4.0


def test_acquire_waits_for_the_cooldown_and_is_the_trial(
    circuit: Circuit, clock: HandClock
) -> None:
    fail(circuit, 3)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(seconds)

    assert circuit.acquire(wait=wait)

    assert waited == [10.0]
    assert not circuit.allow()


def test_acquire_ends_as_soon_as_it_is_asked_to_stop(circuit: Circuit) -> None:
    fail(circuit, 3)
    stop = threading.Event()
    stop.set()

    assert not circuit.acquire(wait=stop.wait)


def test_a_task_waits_for_the_cooldown_too() -> None:
    async def fail_and_wait() -> CircuitState:
        circuit = CircuitBreaker(failures=1, cooldown=0.01).circuit()
        circuit.allow()
        circuit.failed()
        assert circuit.state is CircuitState.OPEN
        await circuit.acquire_async()
        return circuit.state

    assert asyncio.run(fail_and_wait()) is CircuitState.HALF_OPEN


@pytest.mark.parametrize(
    ("failures", "cooldown", "error"),
    [(0, 1.0, InvalidArgument), (1, 0.0, InvalidArgument), (True, 1.0, WrongType)],
)
def test_a_breaker_that_means_nothing_is_refused(
    failures: int, cooldown: float, error: type
) -> None:
    with pytest.raises(error):
        CircuitBreaker(failures, cooldown)
