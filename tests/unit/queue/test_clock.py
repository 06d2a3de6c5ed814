"""Time that does not step: what people do to the wall clock, and what a reboot does."""

from __future__ import annotations

from queue import Empty
from typing import Any

import pytest

from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import LeaseAnswer
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, WatchedSQLiteStore, drain

STEPS = pytest.mark.parametrize("step", [3600, -3600, 10 * 365 * 86_400])


@STEPS
def test_a_wall_clock_that_is_set_hides_no_ready_message(
    queue: Queue, clock: ManualClock, step: float
) -> None:
    queue.put("before")
    clock.step_wall(step)
    queue.put("after")

    assert queue.qsize() == 2
    assert drain(queue) == ["before", "after"]


@STEPS
def test_a_wall_clock_that_is_set_neither_ends_nor_prolongs_a_lease(
    queue: Queue, clock: ManualClock, step: float
) -> None:
    queue.put("a")
    message = queue.get_message()

    clock.step_wall(step)
    clock.advance(29)

    assert queue.empty()
    assert queue.extend(message, 5) is LeaseAnswer.HELD
    clock.advance(5)
    assert queue.qsize() == 1


@STEPS
def test_a_wall_clock_that_is_set_neither_shortens_nor_prolongs_a_delay(
    queue: Queue, clock: ManualClock, step: float
) -> None:
    queue.put("later", delay=60)

    clock.step_wall(step)
    clock.advance(59)
    assert queue.empty()
    clock.advance(1)

    assert queue.get(block=False) == "later"


@STEPS
def test_a_wall_clock_that_is_set_does_not_expire_messages_or_keys(
    queue: Queue, clock: ManualClock, step: float
) -> None:
    queue.put("a", ttl=60, request_id="r")

    clock.step_wall(step)

    assert queue.qsize() == 1
    assert queue.put("a", request_id="r").duplicate
    clock.advance(60)
    assert queue.empty()


@STEPS
def test_what_is_shown_follows_the_wall_clock(
    queue: Queue, clock: ManualClock, step: float
) -> None:
    message = queue.put("a", delay=10, ttl=600)
    clock.advance(10)
    put_at = clock.wall() - 10
    clock.step_wall(step)

    leased = queue.get_message(leased_by="w1")
    queue.record_worker_heartbeat("w1")

    assert leased.created_at == put_at + step
    assert leased.available_at == clock.wall()
    assert leased.leased_until == clock.wall() + 30
    assert leased.expires_at == put_at + step + 600
    assert leased.attempt_history[-1]["at"] == clock.wall()
    assert queue.stats().last_seen_by_worker_id == {"w1": clock.wall()}
    assert queue.stats().oldest_inflight_age_seconds == 0
    queue.dead_letter(leased, "x")
    assert queue.dead_letters()[0].failed_at == clock.wall()
    life = queue.history(message.id)
    assert (life[0].at, life[-1].at) == (put_at + step, clock.wall())
    assert (life[-1].enqueued_at, life[-1].leased_at) == (put_at + step, clock.wall())


def test_readers_are_shown_on_the_wall_clock_too(queue: Queue, clock: ManualClock) -> None:
    queue.put("a")
    clock.step_wall(3600)

    registered = queue.register_reader("billing")

    assert registered.updated_at == queue.readers()[0].updated_at == clock.wall()


def test_a_clock_that_only_drifts_does_not_make_times_flicker(
    queue: Queue, clock: ManualClock
) -> None:
    message = queue.put("a")

    clock.step_wall(0.2)

    assert queue.inspect(message.id) == message


@STEPS
def test_an_object_that_is_opened_after_the_step_has_the_same_time(
    new_queue: NewQueue, clock: ManualClock, step: float
) -> None:
    new_queue().put("later", delay=60)
    clock.step_wall(step)

    late = new_queue()
    late.put("now")
    clock.advance(60)

    assert drain(late) == ["now", "later"]


def test_dead_letters_age_by_the_time_that_passed(queue: Queue, clock: ManualClock) -> None:
    queue.dead_letter(queue.put("a"), "x")

    clock.step_wall(86_400)
    assert queue.prune_dead_letters(3600) == 0
    clock.advance(3600)

    assert queue.prune_dead_letters(3600) == 1


# --- reboots ------------------------------------------------------------------------------------
def reopened(store: WatchedSQLiteStore, clock: ManualClock) -> Queue:
    return PersistentQueue[Any]("jobs", store=WatchedSQLiteStore(store.path), clock=clock)


def test_a_reboot_ends_every_lease_and_charges_nobody(
    file_store: WatchedSQLiteStore, clock: ManualClock
) -> None:
    before: Queue = PersistentQueue("jobs", store=file_store, clock=clock, lease_timeout=3600)
    before.put("a")
    held = before.get_message()
    file_store.close()

    clock.reboot(off_for=5)
    after = reopened(file_store, clock)

    again = after.get_message(block=False)
    assert (again.id, again.attempts, again.crashes) == (held.id, 2, 0)
    assert not after.ack(held)
    after.store.close()


def test_delays_go_on_over_a_reboot(file_store: WatchedSQLiteStore, clock: ManualClock) -> None:
    before: Queue = PersistentQueue("jobs", store=file_store, clock=clock)
    before.put("later", delay=60)
    clock.advance(20)
    file_store.close()

    clock.reboot(off_for=30)
    after = reopened(file_store, clock)

    assert after.empty()
    clock.advance(10)
    assert after.get(block=False) == "later"
    after.store.close()


def test_a_wall_clock_that_lost_its_battery_does_not_turn_time_back(
    file_store: WatchedSQLiteStore, clock: ManualClock
) -> None:
    before: Queue = PersistentQueue("jobs", store=file_store, clock=clock)
    before.put("first")
    file_store.close()

    clock.step_wall(-50 * 365 * 86_400)
    clock.reboot()
    after = reopened(file_store, clock)
    second = after.put("second")

    assert second.created_at == clock.wall()
    assert drain(after) == ["first", "second"]
    after.store.close()


def test_only_the_first_opener_of_a_boot_ends_leases(
    file_store: WatchedSQLiteStore, clock: ManualClock
) -> None:
    PersistentQueue[str]("jobs", store=file_store, clock=clock).put("a")
    file_store.close()
    clock.reboot()
    first = reopened(file_store, clock)
    first.get_message()

    second = reopened(file_store, clock)

    with pytest.raises(Empty):
        second.get(block=False)
    for queue in (first, second):
        queue.store.close()
