"""How fast a worker goes, and when it pauses."""

from __future__ import annotations

import time
from typing import Any

import pytest

from localqueue import (
    AtLeastOnceDelivery,
    AtMostOnceDelivery,
    MemoryQueueStore,
    PersistentQueue,
    PersistentWorkerConfig,
)
from localqueue.commits.protocol import Run
from localqueue.resilience import RateLimit
from tests.unit.worker.own_commit import Message, OwnCommit, committing

Queue = PersistentQueue[Any]


def failing(value: Any) -> None:
    raise KeyError


def times_of(handle: Any, calls: int) -> list[float]:
    """When each of the handlers started, from the first one on."""
    starts: list[float] = []
    for _ in range(calls):
        try:
            handle(starts)
        except (KeyError, ImportError):
            pass
    return [start - starts[0] for start in starts]


def noting(value: Any, starts: list[float]) -> None:
    starts.append(time.monotonic())
    if value == "bad":
        raise KeyError
    if value == "broken":
        raise ImportError


def filled(*values: str) -> Queue:
    queue: Queue = PersistentQueue("jobs", store=MemoryQueueStore())
    queue.put_many(values)
    return queue


@pytest.mark.parametrize("how", ["config", "decorator"])
def test_starts_are_min_interval_apart(kind: Any, how: str) -> None:
    options: dict[str, Any] = {"min_interval": 0.15}
    if how == "config":
        options = {"config": PersistentWorkerConfig(**options)}
    handle = kind.worker(filled("good", "good", "good"), noting, **options)

    starts = times_of(handle, 3)

    assert starts[1] >= 0.15
    assert starts[2] - starts[1] >= 0.15


def test_waiting_for_a_message_does_not_use_up_the_interval(kind: Any) -> None:
    queue = filled("good")
    handle = kind.worker(queue, noting, min_interval=0.2)
    starts: list[float] = []
    handle(starts)
    queue.put("good", delay=0.4)
    queue.put("good", delay=0.4)

    handle(starts)
    handle(starts)

    assert starts[2] - starts[1] >= 0.2


@pytest.mark.parametrize("delivery_policy", [AtLeastOnceDelivery(), AtMostOnceDelivery()])
def test_the_interval_counts_from_where_the_handler_starts(kind: Any, delivery_policy: Any) -> None:
    queue: Queue = PersistentQueue(
        "jobs", store=MemoryQueueStore(), delivery_policy=delivery_policy
    )
    queue.put_many(["good", "good"])
    handle = kind.worker(queue, noting, min_interval=0.15)
    starts: list[float] = []

    stop = queue.listen(lambda event: time.sleep(0.05))  # something takes long just before it
    handle(starts)
    stop()
    handle(starts)

    assert starts[1] - starts[0] >= 0.15


def test_a_rate_limit_bounds_starts_in_any_stretch_of_time(kind: Any) -> None:
    handle = kind.worker(filled(*["good"] * 5), noting, rate_limit=RateLimit(2, per=0.2))

    starts = times_of(handle, 5)

    assert starts[1] < 0.2 <= starts[2]
    assert starts[4] >= 0.4


@pytest.mark.parametrize("how", ["config", "decorator"])
def test_after_failures_in_a_row_the_next_call_waits_for_the_cooldown(kind: Any, how: str) -> None:
    options: dict[str, Any] = {"circuit_breaker_failures": 2, "circuit_breaker_cooldown": 0.3}
    if how == "config":
        options = {"config": PersistentWorkerConfig(**options)}
    handle = kind.worker(filled("bad", "bad", "good", "good"), noting, max_tries=1, **options)

    starts = times_of(handle, 4)

    assert starts[1] < 0.3
    assert starts[2] - starts[1] >= 0.3
    assert starts[3] - starts[2] < 0.3


def test_missing_code_does_not_open_the_circuit(kind: Any) -> None:
    handle = kind.worker(
        filled("bad", "broken", "bad", "good"),
        noting,
        max_tries=1,
        circuit_breaker_failures=2,
        circuit_breaker_cooldown=30,
    )

    assert times_of(handle, 4)[-1] < 30


def test_an_interrupt_counts_neither_as_failure_nor_as_success(kind: Any) -> None:
    queue = filled("bad", "stop", "bad", "good")

    def work(value: Any, starts: list[float]) -> None:
        if value == "stop" and not starts:
            raise KeyboardInterrupt
        noting(value, starts)

    handle = kind.worker(
        queue, work, max_tries=1, circuit_breaker_failures=2, circuit_breaker_cooldown=0.3
    )
    with pytest.raises(KeyError):
        handle([])
    with pytest.raises(KeyboardInterrupt):
        handle([])
    with pytest.raises(KeyError):
        handle([])

    began = time.monotonic()
    handle([0.0])
    assert time.monotonic() - began >= 0.25


@pytest.mark.filterwarnings("ignore::localqueue.CompatibilityWarning")
def test_what_was_never_started_says_nothing_about_the_service(kind: Any) -> None:
    class AwayAtFirst(OwnCommit):
        away = True

        def begin(self, message: Message) -> Run:
            if self.away:
                self.away = False
                raise OSError("away")
            return Run()

    queue = committing(AwayAtFirst())
    queue.put("job", dedupe_key="a")
    handle = kind.worker(
        queue, lambda value: value, circuit_breaker_failures=1, circuit_breaker_cooldown=60
    )

    with pytest.raises(OSError, match="away"):
        handle()

    assert handle() == "job"
