"""What a put into a full queue does, under every policy."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from queue import Full

import pytest

from localqueue.clock import Now
from localqueue.errors import StoreClosed
from localqueue.policies import (
    BoundedBackpressure,
    DropNewestBackpressure,
    DropOldestBackpressure,
    OrderingKeys,
    OverflowBackpressure,
    PriorityOrdering,
    PublishSubscribeRouting,
    RejectingBackpressure,
    StaticFanoutSubscriptions,
    ThrottlingBackpressure,
)
from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import Enqueued, LeaseRequest, Put, QueueIsFull
from localqueue.stores.settings import FANOUT_MODES
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import (
    Background,
    NewQueue,
    Queue,
    WatchedMemoryStore,
    WatchedSQLiteStore,
    WatchedStore,
    blocked,
    drain,
    kinds,
    values,
)

pytestmark = pytest.mark.usefixtures("only_signals_wake")

MAKE_ROOM = """
import sys
from localqueue import PersistentQueue
queue = PersistentQueue("jobs", store_path=sys.argv[1])
queue.ack(queue.get_message(block=False))
"""


# --- block --------------------------------------------------------------------------------------
def test_full_says_what_put_would_find(new_queue: NewQueue, clock: ManualClock) -> None:
    queue = new_queue(maxsize=2)
    queue.put("ready")
    assert not queue.full()

    queue.put("delayed", delay=60)
    assert queue.full()
    with pytest.raises(Full):
        queue.put_nowait("c")

    queue.get_message()
    assert not queue.full(), "a leased message takes no room"
    queue.put_nowait("c")
    assert queue.full()
    clock.advance(30)
    assert queue.stats().ready == 2, "what comes back is not refused"


def test_a_queue_without_a_bound_is_never_full(queue: Queue) -> None:
    queue.put_many(range(100))

    assert not queue.full()


def test_held_messages_take_room(new_queue: NewQueue) -> None:
    queue = new_queue(maxsize=2, ordering_policy=OrderingKeys())
    queue.put_many(["a", "b"], ordering_key="k")

    assert queue.full()


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_a_full_queue_raises_full_when_the_time_is_over(
    new_queue: NewQueue, seconds: float
) -> None:
    queue = new_queue(maxsize=1)
    queue.put("a")
    began = time.monotonic()

    with pytest.raises(Full):
        queue.put("b", timeout=seconds)

    assert time.monotonic() - began >= seconds
    assert queue.stats().total == 1


def test_a_producer_wakes_when_another_thread_takes_a_message(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue = new_queue(backpressure=BoundedBackpressure(1))
    queue.put("a")
    producer = blocked(store, lambda: queue.put("b"))

    assert queue.get(block=False) == "a"

    assert producer.result().value == "b"
    assert queue.get(block=False) == "b"


@pytest.mark.parametrize("how", ["ack", "dead_letter", "cancel"])
def test_a_producer_wakes_when_a_waiting_message_leaves(
    new_queue: NewQueue, store: WatchedStore, how: str
) -> None:
    queue = new_queue(maxsize=1)
    waiting = queue.put("a")
    producer = blocked(store, lambda: queue.put("b"))

    assert getattr(queue, how)(waiting)

    assert producer.result().value == "b"


class MakesRoomBetween(WatchedMemoryStore):
    """Somebody takes a message just after a put found no room, and before it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def enqueue_many(self, puts: Sequence[Put], *, now: Now) -> Sequence[Enqueued]:
        try:
            return super().enqueue_many(puts, now=now)
        except QueueIsFull:
            self.refused += 1
            if self.refused == 2:
                self.lease(LeaseRequest(("jobs",)), now=now)
            raise


def test_room_that_is_made_between_looking_and_waiting_is_not_missed() -> None:
    store = MakesRoomBetween()
    queue: Queue = PersistentQueue("jobs", store=store, maxsize=1)
    queue.put("a")

    assert Background(lambda: queue.put("b")).result().value == "b"
    assert store.refused == 2


def test_a_producer_wakes_when_the_queue_is_purged(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue = new_queue(maxsize=1)
    queue.put("a")
    producer = blocked(store, lambda: queue.put("b"))

    queue.purge()

    assert producer.result().value == "b"


def test_a_producer_wakes_when_the_bound_is_raised(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue = new_queue()
    new_queue(maxsize=1).put("a")
    producer = blocked(store, lambda: queue.put("b"))

    new_queue(maxsize=2).settings()

    assert producer.result().value == "b"


def test_a_producer_wakes_when_what_was_in_the_way_expires(
    new_queue: NewQueue,
    store: WatchedStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("localqueue.calls.patience.LOOK_AGAIN", 0.05)
    queue = new_queue(maxsize=1)
    queue.put("a", ttl=60)
    producer = blocked(store, lambda: queue.put("b"))

    clock.advance(60)

    assert producer.result().value == "b"
    assert drain(queue) == ["b"]


def test_a_producer_wakes_when_another_process_makes_room(file_store: WatchedSQLiteStore) -> None:
    queue: Queue = PersistentQueue("jobs", store=file_store, maxsize=1)
    queue.put("a")
    producer = blocked(file_store, lambda: queue.put("b"))

    subprocess.run([sys.executable, "-c", MAKE_ROOM, str(file_store.path)], check=True, timeout=60)

    assert producer.result().value == "b"
    assert values(queue.peek(5)) == ["b"]


def test_many_producers_and_consumers_never_exceed_the_bound(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue = new_queue(maxsize=3)
    highest: list[int] = []

    def produce(first: int) -> None:
        for number in range(first, first + 20):
            queue.put(number, timeout=20)

    producers = [Background(lambda n=n: produce(n)) for n in (0, 100, 200)]  # type: ignore[misc]
    seen = []
    for _ in range(60):
        highest.append(store.waiting("jobs", now=0.0))
        message = queue.get_message(timeout=20)
        seen.append(message.value)
        queue.ack(message)

    for producer in producers:
        producer.result()
    assert max(highest) <= 3
    assert sorted(seen) == sorted([*range(20), *range(100, 120), *range(200, 220)])


def test_capacity_is_exact_when_many_threads_put_at_once(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=RejectingBackpressure(7))
    start = threading.Barrier(4)

    def produce() -> int:
        start.wait(20)
        stored = 0
        for number in range(10):
            try:
                queue.put(number)
                stored += 1
            except Full:
                pass
        return stored

    assert sum(one.result() for one in [Background(produce) for _ in range(4)]) == 7
    assert queue.qsize() == 7


def test_a_batch_waits_until_all_of_it_fits(new_queue: NewQueue, store: WatchedStore) -> None:
    queue = new_queue(maxsize=3)
    queue.put_many(["a", "b"])
    producer = blocked(store, lambda: queue.put_many(["c", "d", "e"]))

    queue.get_message(block=False)
    queue.get_message(block=False)

    assert values(producer.result()) == ["c", "d", "e"]


def test_a_duplicate_needs_no_room(new_queue: NewQueue) -> None:
    queue = new_queue(maxsize=1)
    queue.put("a", dedupe_key="k")

    assert queue.put("a", dedupe_key="k", timeout=0).duplicate


def test_a_queue_that_is_closed_while_a_producer_waits_stores_nothing(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue, other = new_queue(maxsize=1), new_queue()
    queue.put("a")
    producer = blocked(store, lambda: queue.put("b"))

    queue.close()
    other.get_message(block=False)

    with pytest.raises(StoreClosed):
        producer.result()
    assert other.stats().total == 1


# --- reject -------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", [RejectingBackpressure(1), BoundedBackpressure(1, "reject")])
def test_rejecting_raises_full_at_once_even_when_put_may_block(
    new_queue: NewQueue, policy: RejectingBackpressure | BoundedBackpressure
) -> None:
    queue = new_queue(backpressure=policy)
    queue.put("a")

    with pytest.raises(Full):
        queue.put("b")

    assert values(queue.peek(5)) == ["a"]


# --- drop ---------------------------------------------------------------------------------------
def test_dropping_the_newest_tells_the_producer_and_the_journal(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=DropNewestBackpressure(1))
    queue.put("a")

    dropped = queue.put("b")

    assert dropped.dropped
    assert (dropped.value, queue.inspect(dropped.id)) == ("b", None)
    assert kinds(queue.history(dropped.id)) == ["dropped"]
    assert drain(queue) == ["a"]


def test_dropping_the_newest_keeps_what_fits_of_a_batch(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=DropNewestBackpressure(2))

    messages = queue.put_many(["a", "b", "c"])

    assert [message.dropped for message in messages] == [False, False, True]
    assert drain(queue) == ["a", "b"]


def test_dropping_the_oldest_makes_room_for_the_newest(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    queue = new_queue(backpressure=DropOldestBackpressure(2))
    oldest = queue.put("a")
    clock.advance(1)
    queue.put("b")

    assert not queue.put("c").dropped

    assert drain(queue) == ["b", "c"]
    assert kinds(queue.history(oldest.id)) == ["enqueued", "dropped"]


def test_dropping_the_oldest_spares_higher_priorities(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=DropOldestBackpressure(2), ordering_policy=PriorityOrdering())
    queue.put("urgent", priority=9)
    queue.put("low")

    queue.put("lower still")

    assert drain(queue) == ["urgent", "lower still"]


def test_dropping_the_oldest_raises_full_at_once_when_nothing_may_go(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=DropOldestBackpressure(1))
    queue.put("delayed", delay=60)

    with pytest.raises(Full):
        queue.put("b")

    assert queue.stats().delayed == 1


# --- throttle -----------------------------------------------------------------------------------
def test_throttling_stores_and_then_pauses_the_producer(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=ThrottlingBackpressure(1, max_delay=0.3))
    queue.put("a")
    began = time.monotonic()

    message = queue.put("b")

    assert time.monotonic() - began >= 0.3
    assert not message.dropped
    assert drain(queue) == ["a", "b"]


def test_the_pause_grows_with_the_excess(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=ThrottlingBackpressure(4, max_delay=0.4))
    queue.put_many(range(4))
    pauses = []
    for number in range(4, 6):
        began = time.monotonic()
        queue.put(number)
        pauses.append(time.monotonic() - began)

    assert pauses[0] >= 0.1
    assert pauses[1] >= 0.2
    assert queue.qsize() == 6


def test_a_pause_ends_as_soon_as_there_is_room(new_queue: NewQueue, store: WatchedStore) -> None:
    queue = new_queue(backpressure=ThrottlingBackpressure(1, max_delay=3600))
    queue.put("a")
    producer = blocked(store, lambda: queue.put("b"))

    assert values(queue.get_messages(2)) == ["a", "b"], "stored before the pause"

    assert producer.result().value == "b"


def test_a_pause_ends_when_another_process_makes_room(file_store: WatchedSQLiteStore) -> None:
    queue: Queue = PersistentQueue(
        "jobs", store=file_store, backpressure=ThrottlingBackpressure(2, max_delay=3600)
    )
    queue.put_many(["a", "b"])
    producer = blocked(file_store, lambda: queue.put("c"))

    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", MAKE_ROOM, str(file_store.path)], check=True, timeout=60
        )

    assert producer.result().value == "c"


def test_a_put_that_may_not_block_does_not_pause(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=ThrottlingBackpressure(1, max_delay=3600))
    queue.put("a")

    queue.put_nowait("b")
    queue.put("c", timeout=0)

    assert queue.qsize() == 3


# --- overflow -----------------------------------------------------------------------------------
def test_what_does_not_fit_goes_to_the_other_queue(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=OverflowBackpressure(1, to="spare"))
    queue.put("a")

    message = queue.put("b")

    assert message.queue == "spare"
    assert (drain(queue), drain(new_queue("spare"))) == (["a"], ["b"])


def test_the_other_queue_blocks_by_its_own_rules(new_queue: NewQueue, store: WatchedStore) -> None:
    queue = new_queue(backpressure=OverflowBackpressure(1, to="spare"))
    spare = new_queue("spare", maxsize=1)
    spare.put("x")
    queue.put("a")
    producer = blocked(store, lambda: queue.put("b"))

    spare.get_message(block=False)

    assert producer.result().queue == "spare"


def test_queues_that_overflow_into_each_other_end_in_full(new_queue: NewQueue) -> None:
    one = new_queue("one", backpressure=OverflowBackpressure(1, to="two"))
    two = new_queue("two", backpressure=OverflowBackpressure(1, to="one"))
    one.put("a")
    two.put("b")

    with pytest.raises(Full):
        one.put("c")


def test_without_another_queue_it_becomes_a_dead_letter(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=OverflowBackpressure(1))
    queue.put("a")

    message = queue.put("b")

    assert (message.state, message.queue) == ("dead", "jobs")
    assert message.last_error is not None
    assert message.last_error["type"] == "QueueFull"
    assert values(queue.dead_letters()) == ["b"]


def test_a_key_that_overflowed_is_one_message_all_the_same(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=OverflowBackpressure(1, to="spare"))
    queue.put("a")
    first = queue.put("b", dedupe_key="k")

    again = queue.put("b", dedupe_key="k")

    assert (again.id, again.queue, again.duplicate) == (first.id, "spare", True)
    assert new_queue("spare").qsize() == 1


# --- topics -------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", FANOUT_MODES)
def test_one_full_subscriber_holds_up_the_publication_for_all(
    new_queue: NewQueue, store: WatchedStore, mode: str
) -> None:
    topic = new_queue(
        maxsize=1,
        routing_policy=PublishSubscribeRouting(mode),
        subscription_policy=StaticFanoutSubscriptions(["fast", "slow"]),
    )
    fast, slow = topic.subscriber_queue("fast"), topic.subscriber_queue("slow")
    topic.put("a")
    assert fast.get(block=False) == "a"

    assert topic.full()
    with pytest.raises(Full):
        topic.put("b", timeout=0)
    assert (fast.qsize(), slow.qsize()) == (0, 1)

    producer = blocked(store, lambda: topic.put("b"))
    assert slow.get(block=False) == "a"

    producer.result()
    assert (fast.qsize(), slow.qsize()) == (1, 1)


def test_a_throttled_publication_pauses_until_the_slowest_has_room(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    topic = new_queue(
        backpressure=ThrottlingBackpressure(1, max_delay=3600),
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=StaticFanoutSubscriptions(["fast", "slow"]),
    )
    fast, slow = topic.subscriber_queue("fast"), topic.subscriber_queue("slow")
    topic.put("a")
    producer = blocked(store, lambda: topic.put("b"))

    fast.get_messages(2)
    assert producer.is_running()
    slow.get_messages(2)

    producer.result()
