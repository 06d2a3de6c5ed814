from __future__ import annotations

import asyncio
import threading

import pytest

from localqueue.errors import InvalidArgument, WrongType
from localqueue.resilience import RateLimit


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


def test_the_first_n_start_at_once_and_the_next_waits_for_the_first_to_be_old(
    clock: HandClock,
) -> None:
    limiter = RateLimit(3, per=10).limiter(clock)

    for _ in range(3):
        assert limiter.delay() == 0.0
        assert limiter.try_acquire()
        clock.advance(2)

    assert not limiter.try_acquire()
    assert limiter.delay() == 4.0
    clock.advance(4)
    assert limiter.try_acquire()
    assert limiter.delay() == 2.0


def test_no_stretch_of_time_has_more_than_n_starts(clock: HandClock) -> None:
    limiter = RateLimit(5, per=1.0).limiter(clock)
    starts: list[float] = []

    for _ in range(400):
        if limiter.try_acquire():
            starts.append(clock.now)
        clock.advance(0.03)

    for start in starts:
        assert sum(1 for other in starts if start <= other < start + 1.0) <= 5
    assert len(starts) >= 5 * 11


def test_a_start_that_was_taken_early_counts_from_when_it_happens(clock: HandClock) -> None:
    limiter = RateLimit(2, per=10).limiter(clock)

    assert limiter.try_acquire()
    clock.advance(1)
    taken = limiter.take()
    assert taken == clock.now
    assert limiter.take() is None
    clock.advance(3)
    limiter.count_from_now(taken)

    assert limiter.delay() == 6.0
    clock.advance(6)
    assert limiter.try_acquire()
    assert limiter.delay() == 4.0


def test_a_start_that_is_forgotten_already_counts_again_when_it_happens(clock: HandClock) -> None:
    limiter = RateLimit(1, per=10).limiter(clock)

    taken = limiter.take()
    assert taken is not None
    clock.advance(11)
    assert limiter.delay() == 0.0
    limiter.count_from_now(taken)

    assert limiter.delay() == 10.0


def test_several_are_taken_together_or_not_at_all(clock: HandClock) -> None:
    limiter = RateLimit(4, per=1).limiter(clock)

    assert limiter.available() == 4
    assert limiter.try_acquire(3)
    assert not limiter.try_acquire(2)
    assert limiter.available() == 1


def test_acquire_waits_exactly_as_long_as_it_has_to(clock: HandClock) -> None:
    limiter = RateLimit(1, per=7.0).limiter(clock)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(seconds)

    assert limiter.acquire(wait=wait)
    assert limiter.acquire(wait=wait)

    assert waited == [7.0]


def test_acquire_gives_up_at_once_when_the_start_would_come_too_late(clock: HandClock) -> None:
    limiter = RateLimit(1, per=7.0).limiter(clock)
    limiter.try_acquire()

    assert not limiter.acquire(timeout=6.9, wait=lambda _: pytest.fail("it waited in vain"))


def test_acquire_takes_nothing_when_it_is_asked_to_stop(clock: HandClock) -> None:
    limiter = RateLimit(1, per=7.0).limiter(clock)
    limiter.try_acquire()
    stop = threading.Event()
    stop.set()

    assert not limiter.acquire(wait=stop.wait)
    clock.advance(7.0)
    assert limiter.available() == 1


def test_threads_that_share_a_limiter_never_get_more_than_it_gives(clock: HandClock) -> None:
    limiter = RateLimit(50, per=1000).limiter(clock)
    taken: list[bool] = []

    def take() -> None:
        taken.extend(limiter.try_acquire() for _ in range(40))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(taken) == 50


async def _acquire_two(limit: RateLimit) -> tuple[bool, bool]:
    limiter = limit.limiter()
    return await limiter.acquire_async(), await limiter.acquire_async(timeout=0.0)


def test_a_task_gets_the_same_answers() -> None:
    assert asyncio.run(_acquire_two(RateLimit(1, per=3600))) == (True, False)
    assert asyncio.run(_acquire_two(RateLimit(2, per=3600))) == (True, True)


@pytest.mark.parametrize(
    ("n", "per", "error"),
    [
        (0, 1.0, InvalidArgument),
        (1, 0.0, InvalidArgument),
        (1, -1.0, InvalidArgument),
        (1.5, 1.0, WrongType),
        (1, "1", WrongType),
    ],
)
def test_a_limit_that_means_nothing_is_refused(n: int, per: float, error: type) -> None:
    with pytest.raises(error):
        RateLimit(n, per=per)
