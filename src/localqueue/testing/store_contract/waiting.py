"""Time: boots and set clocks. And waiting: who is told that something may have changed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from localqueue.clock import StoreTime
from localqueue.message import Receipt
from localqueue.outcome import Ack
from localqueue.stores.protocol import LeaseRequest, QueueStore, Settle
from localqueue.testing.clock import ManualClock
from localqueue.testing.store_contract.phrases import (
    NOW,
    QUEUE,
    StoreCase,
    ack,
    lease,
    lease_one,
    new_put,
    put,
    put_dead,
    receipt,
    release,
)


class Boots(StoreCase):
    """Store time goes on through reboots, and does not step with the wall clock."""

    def test_store_time_starts_at_the_wall_clock(self, store: QueueStore) -> None:
        clock = ManualClock(NOW)

        time = StoreTime(clock, store.open_clock(clock))

        assert time.now() == NOW
        clock.advance(5)
        assert time.now() == NOW + 5

    def test_within_a_boot_everyone_has_the_same_time(self, store: QueueStore) -> None:
        clock = ManualClock(NOW)
        offset = store.open_clock(clock)
        clock.step_wall(3600)

        assert store.open_clock(clock) == offset
        clock.step_wall(-7200)
        assert self.reopened(store).open_clock(clock) == offset

    def test_a_new_boot_continues_at_the_wall_clock(self, store: QueueStore) -> None:
        clock = ManualClock(NOW)
        put(store, now=StoreTime(clock, store.open_clock(clock)).now())
        clock.reboot(off_for=600)

        again = self.reopened(store)
        time = StoreTime(clock, again.open_clock(clock))

        assert time.now() == NOW + 600

    def test_a_new_boot_does_not_go_back_before_the_last_event(self, store: QueueStore) -> None:
        clock = ManualClock(NOW)
        time = StoreTime(clock, store.open_clock(clock))
        clock.advance(100)
        put(store, now=time.now())
        clock.step_wall(-5000)
        clock.reboot()

        again = self.reopened(store)
        time = StoreTime(clock, again.open_clock(clock))

        assert time.now() >= NOW + 100
        assert len(lease(again, 1, now=time.now())) == 1

    def test_a_new_boot_frees_the_leases_of_the_old_one_without_blame(
        self, store: QueueStore
    ) -> None:
        clock = ManualClock(NOW)
        store.open_clock(clock)
        store.configure(QUEUE, {"crash_limit": 1}, now=NOW)
        put(store)
        old = lease_one(store, timeout=3600.0, worker="w1", liveness="worker-1")
        clock.reboot(off_for=10)

        again = self.reopened(store)
        time = StoreTime(clock, again.open_clock(clock))
        new = lease_one(again, now=time.now())

        assert new.id == old.id
        assert (new.attempts, new.crashes) == (2, 0)
        assert ack(again, old, now=time.now()) == [False]

    def test_only_the_first_opener_of_a_boot_frees_leases(self, store: QueueStore) -> None:
        clock = ManualClock(NOW)
        store.open_clock(clock)
        put(store)
        clock.reboot(off_for=10)
        again = self.reopened(store)
        time = StoreTime(clock, again.open_clock(clock))
        held = lease_one(again, now=time.now(), timeout=3600.0)

        later = self.reopened(again)
        time = StoreTime(clock, later.open_clock(clock))

        assert lease(later, 1, now=time.now()) == []
        assert ack(later, held, now=time.now()) == [True]


PATIENCE = 20.0


class Waiting(StoreCase):
    """A waiter that was made before the change is told of it."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda store: put(store, "new"),
            lambda store: put(store, "soon", delay=5.0),
            lambda store: release(store, lease_one(store)),
            lambda store: store.configure(QUEUE, {"crash_limit": 7, "paused": False}, now=NOW),
            lambda store: store.requeue_dead_many(
                QUEUE, [store.dead_letters(QUEUE)[0].id], now=NOW
            ),
        ],
        ids=["put", "delayed put", "release", "resume", "requeue"],
    )
    def test_who_waits_for_something_ready_is_told(
        self, store: QueueStore, change: Callable[[QueueStore], object]
    ) -> None:
        put(store, "there")
        put_dead(store, "dead")
        waiter = store.watch([QUEUE], "ready")
        try:
            change(store)

            assert waiter.wait(PATIENCE)
        finally:
            waiter.close()

    def test_the_next_of_a_key_is_told_to_who_waits(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "per-key"}, now=NOW)
        put(store, ordering_key="k")
        put(store, ordering_key="k")
        head = lease_one(store)
        waiter = store.watch([QUEUE], "ready")
        try:
            ack(store, head)

            assert waiter.wait(PATIENCE)
        finally:
            waiter.close()

    @pytest.mark.parametrize(
        "change",
        [
            lambda store: lease_one(store),
            lambda store: lease_one(store, remove=True),
            lambda store: store.settle_and_lease([], LeaseRequest((QUEUE,)), now=NOW),
            lambda store: store.purge(QUEUE, now=NOW),
            lambda store: store.cancel(QUEUE, store.peek(QUEUE, 1, now=NOW)[0].id, now=NOW),
            lambda store: store.configure(QUEUE, {"maxsize": 2}, now=NOW),
            lambda store: store.ack_many([_first(store)], now=NOW),
            lambda store: store.settle(Settle(_first(store), Ack()), now=NOW),
        ],
        ids=["lease", "removal", "settle and lease", "purge", "cancel", "bound", "ack", "settle"],
    )
    def test_who_waits_for_room_is_told(
        self, store: QueueStore, change: Callable[[QueueStore], object]
    ) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "block"}, now=NOW)
        put(store)
        waiter = store.watch([QUEUE], "room")
        try:
            change(store)

            assert waiter.wait(PATIENCE)
        finally:
            waiter.close()

    def test_a_waiter_on_several_queues_is_told_of_each(self, store: QueueStore) -> None:
        for name in ("a", "b"):
            put(store, queue=name)
        for name in ("a", "b"):
            waiter = store.watch(["a", "b"], "ready")
            put(store, "new", queue=name)
            try:
                assert waiter.wait(PATIENCE)
            finally:
                waiter.close()

    def test_a_waiter_in_another_thread_wakes(self, store: QueueStore) -> None:
        put(store, "there")
        waiter = store.watch([QUEUE], "ready")
        told: list[bool] = []
        thread = threading.Thread(target=lambda: told.append(waiter.wait(PATIENCE)))
        thread.start()

        put(store, "new")
        thread.join()
        waiter.close()

        assert told == [True]

    def test_a_queue_may_be_watched_before_it_is_used(self, store: QueueStore) -> None:
        waiter = store.watch(["not yet"], "ready")
        try:
            put(store, queue="not yet")

            assert waiter.wait(PATIENCE)
        finally:
            waiter.close()

    def test_who_waits_for_different_queues_that_are_not_used_yet_are_both_told(
        self, store: QueueStore
    ) -> None:
        waiters = {name: store.watch([name], "ready") for name in ("a", "b")}
        try:
            for name in ("b", "a"):
                put(store, queue=name)
                assert waiters[name].wait(PATIENCE)
                lease(store, 1, queue=name)

                put(store, "next", queue=name)
                assert waiters[name].wait(PATIENCE)
        finally:
            for waiter in waiters.values():
                waiter.close()

    def test_a_waiter_is_told_as_often_as_it_waits(self, store: QueueStore) -> None:
        put(store)
        waiter = store.watch([QUEUE], "ready")
        try:
            for number in range(3):
                lease(store, 10)
                put(store, number)
                assert waiter.wait(PATIENCE)
        finally:
            waiter.close()

    def test_who_is_told_and_leaves_something_tells_the_next(self, store: QueueStore) -> None:
        put(store, "there")
        lease(store, 10)
        waiters = [store.watch([QUEUE], "ready") for _ in range(3)]
        try:
            store.enqueue_many([new_put(number) for number in range(3)], now=NOW)

            for waiter in waiters:
                assert waiter.wait(PATIENCE)
                assert len(lease(store, 1)) == 1
                waiter.close()
        finally:
            for waiter in waiters:
                waiter.close()

    def test_who_is_told_of_room_and_leaves_some_tells_the_next(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 2, "overflow": "block"}, now=NOW)
        put(store)
        put(store)
        waiters = [store.watch([QUEUE], "room") for _ in range(2)]
        try:
            lease(store, 2)

            for waiter in waiters:
                assert waiter.wait(PATIENCE)
                put(store)
                waiter.close()
        finally:
            for waiter in waiters:
                waiter.close()

    def test_who_is_told_and_goes_without_looking_tells_the_next(self, store: QueueStore) -> None:
        put(store, "there")
        lease(store, 10)
        first, second = (store.watch([QUEUE], "ready") for _ in range(2))
        try:
            put(store)
            assert first.wait(PATIENCE)
            first.close()

            assert second.wait(PATIENCE)
        finally:
            first.close()
            second.close()

    def test_a_task_is_told_while_its_loop_goes_on(self, store: QueueStore) -> None:
        async def main() -> tuple[bool, int]:
            waiter = store.watch([QUEUE], "ready")
            turns = 0
            try:
                waiting = asyncio.create_task(waiter.wait_async(PATIENCE))
                while turns < 3:
                    await asyncio.sleep(0)
                    turns += 1
                await asyncio.to_thread(put, store, "new")
                return await waiting, turns
            finally:
                waiter.close()

        put(store, "there")
        lease(store, 10)

        assert asyncio.run(main()) == (True, 3)

    def test_a_task_may_wait_for_a_queue_that_is_not_used_yet(self, store: QueueStore) -> None:
        async def main() -> None:
            waiter = store.watch(["not yet"], "ready")
            try:
                for number in range(2):
                    waiting = asyncio.create_task(waiter.wait_async(PATIENCE))
                    await asyncio.sleep(0)
                    await asyncio.to_thread(put, store, number, queue="not yet")
                    assert await waiting
                    await asyncio.to_thread(lease, store, 10, queue="not yet")
            finally:
                waiter.close()

        asyncio.run(main())

    def test_what_a_cancelled_task_was_told_the_next_one_is_told(self, store: QueueStore) -> None:
        async def main() -> bool:
            first, second = (store.watch([QUEUE], "ready") for _ in range(2))
            waiting = asyncio.create_task(first.wait_async(PATIENCE))
            await asyncio.sleep(0)
            await asyncio.to_thread(put, store, "new")
            try:
                waiting.cancel()
                await asyncio.wait([waiting])
                first.close()
                return await second.wait_async(PATIENCE)
            finally:
                first.close()
                second.close()

        put(store, "there")
        lease(store, 10)

        assert asyncio.run(main())

    def test_closing_the_store_ends_every_wait(self, store: QueueStore) -> None:
        put(store, "there")
        lease(store, 10)
        told: list[bool] = []
        waiters = [store.watch([QUEUE], "ready") for _ in range(2)]

        def wait_in_a_loop() -> None:
            told.append(asyncio.run(waiters[1].wait_async(PATIENCE)))

        threads = [
            threading.Thread(target=lambda: told.append(waiters[0].wait(PATIENCE))),
            threading.Thread(target=wait_in_a_loop),
        ]
        for thread in threads:
            thread.start()
        began = time.monotonic()

        store.close()

        for thread in threads:
            thread.join()
        assert told == [True, True]
        assert time.monotonic() - began < PATIENCE
        for waiter in waiters:
            assert waiter.wait(PATIENCE), "also who comes later does not wait"
            waiter.close()

    def test_a_waiter_may_be_closed_twice(self, store: QueueStore) -> None:
        waiter = store.watch([QUEUE], "ready")

        waiter.close()
        waiter.close()

    def test_a_waiter_does_not_wait_longer_than_it_was_told(self, store: QueueStore) -> None:
        put(store)
        waiter = store.watch([QUEUE], "ready")
        try:
            assert waiter.wait(0.0) in (True, False)
        finally:
            waiter.close()


def _first(store: QueueStore) -> Receipt:
    return receipt(store.peek(QUEUE, 1, now=NOW)[0]._replace(token=0))
