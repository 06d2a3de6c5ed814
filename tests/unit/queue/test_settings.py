"""What the store acts on is kept in the store, the same for every object and process."""

from __future__ import annotations

import warnings
from pathlib import Path
from queue import Empty, Full

import pytest

from localqueue.errors import InvalidMessage, SettingsOverwritten
from localqueue.policies import (
    BoundedBackpressure,
    FifoReadyOrdering,
    Journal,
    MessageTTL,
    NoExpiry,
    OrderingKeys,
    PriorityOrdering,
    QueuePolicySet,
    RejectingBackpressure,
)
from localqueue.queue import PersistentQueue
from localqueue.stores.settings import QueueSettings
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, kinds


def test_a_queue_that_was_only_built_has_written_nothing(new_queue: NewQueue) -> None:
    new_queue(maxsize=3)

    assert new_queue().settings() == QueueSettings()
    assert new_queue("other").store.settings("jobs") is None


def test_an_explicit_policy_is_written_at_the_first_use(new_queue: NewQueue) -> None:
    queue = new_queue(
        maxsize=3, ordering_policy=PriorityOrdering(), expiry_policy=MessageTTL(60, "dead-letter")
    )

    assert queue.qsize() == 0

    expected = QueueSettings(ordering="priority", maxsize=3, ttl=60.0, on_expiry="dead-letter")
    assert queue.settings() == new_queue().settings() == expected


def test_policies_of_a_set_are_explicit_too(new_queue: NewQueue) -> None:
    queue = new_queue(policy_set=QueuePolicySet(ordering_policy=OrderingKeys()))

    assert queue.settings().ordering == "per-key"


def test_plain_defaults_are_never_written(new_queue: NewQueue) -> None:
    new_queue(maxsize=3, ordering_policy=PriorityOrdering()).put("a", priority=1)

    new_queue(maxsize=0, lease_timeout=30.0).put("b")

    assert new_queue().settings() == QueueSettings(ordering="priority", maxsize=3)


def test_the_last_explicit_policy_wins_and_leaves_an_event(new_queue: NewQueue) -> None:
    new_queue(maxsize=3).put("a")

    new_queue(maxsize=5).put("b")

    queue = new_queue()
    assert queue.settings().maxsize == 5
    configured = [event.detail for event in queue.journal() if event.kind == "configured"]
    assert configured == [{"maxsize": 3}, {"maxsize": 5}]


def test_the_same_policy_again_leaves_no_event(new_queue: NewQueue) -> None:
    new_queue(maxsize=3).put("a")

    new_queue(maxsize=3).put("b")

    assert kinds(new_queue().journal()) == ["configured", "enqueued", "enqueued"]


def test_a_policy_that_says_the_default_brings_the_default_back(new_queue: NewQueue) -> None:
    new_queue(ordering_policy=PriorityOrdering(), expiry_policy=MessageTTL(60), maxsize=4).put("a")

    back = new_queue(
        ordering_policy=FifoReadyOrdering(),
        expiry_policy=NoExpiry(),
        backpressure=BoundedBackpressure(0),
    )

    assert back.settings() == QueueSettings()


def test_one_backpressure_replaces_all_of_another(new_queue: NewQueue) -> None:
    new_queue(backpressure=RejectingBackpressure(2)).put("a")

    assert new_queue(maxsize=3).settings() == QueueSettings(maxsize=3, overflow="block")


def test_the_row_decides_for_an_object_that_asked_for_nothing(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    new_queue(
        backpressure=RejectingBackpressure(2),
        ordering_policy=PriorityOrdering(),
        expiry_policy=MessageTTL(60),
    ).put("a")
    plain = new_queue()

    message = plain.put("b", priority=7)

    assert (message.priority, message.expires_at) == (7, clock.wall() + 60)
    assert plain.full()
    with pytest.raises(Full):
        plain.put("c")
    assert plain.get(block=False) == "b"


def test_an_object_that_was_used_before_sees_what_is_written_later(new_queue: NewQueue) -> None:
    early = new_queue()
    early.put("a")
    with pytest.raises(InvalidMessage):
        early.put("b", priority=1)

    new_queue(ordering_policy=PriorityOrdering()).put("c")

    assert early.put("d", priority=5).priority == 5
    assert early.get(block=False) == "d"


def test_keys_made_from_values_are_allowed_by_what_was_written_later(new_queue: NewQueue) -> None:
    early = new_queue()
    early.put("before")

    new_queue(ordering_policy=OrderingKeys()).put("x", ordering_key="k")

    [message] = early.put_many(["a"], ordering_key=lambda value: f"key of {value}")
    assert message.ordering_key == "key of a"


def test_an_object_that_was_used_before_is_refused_what_is_not_allowed_any_more(
    new_queue: NewQueue,
) -> None:
    early = new_queue(ordering_policy=PriorityOrdering())
    early.put("a", priority=1)

    new_queue(ordering_policy=FifoReadyOrdering()).put("b")

    with pytest.warns(SettingsOverwritten), pytest.raises(InvalidMessage, match="PriorityOrdering"):
        early.put("c", priority=1)
    assert early.stats().total == 2


def test_an_object_whose_settings_were_overwritten_warns_once_and_where_it_put(
    new_queue: NewQueue,
) -> None:
    mine = new_queue(maxsize=3)
    mine.put("a")
    new_queue(maxsize=5).put("b")

    with pytest.warns(SettingsOverwritten, match=r"'jobs'.*'maxsize': 5") as caught:
        mine.put("c")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine.put("d")

    assert Path(caught[0].filename).name == Path(__file__).name
    assert mine.stats().ready == 4, "the puts themselves are stored"


def test_what_another_wrote_beside_my_settings_does_not_warn(new_queue: NewQueue) -> None:
    mine = new_queue(maxsize=3)
    mine.put("a")

    new_queue(expiry_policy=MessageTTL(60)).put("b")

    assert mine.put("c").expires_at is not None


def test_an_object_without_settings_of_its_own_never_warns(new_queue: NewQueue) -> None:
    plain = new_queue()
    plain.put("a")

    new_queue(maxsize=5).put("b")

    plain.put("c")
    assert plain.settings().maxsize == 5


def test_settings_survive_the_closing_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with PersistentQueue[str]("jobs", store_path=path, journal_policy=Journal(max_rows=9)) as queue:
        queue.put("a")
        queue.pause()

    with PersistentQueue[str]("jobs", store_path=path) as again:
        assert again.settings() == QueueSettings(journal_max_rows=9, paused=True)


def test_two_stores_on_one_file_have_the_same_settings(tmp_path: Path, clock: ManualClock) -> None:
    stores = [SQLiteQueueStore(tmp_path / "queue.sqlite3") for _ in range(2)]
    first: Queue = PersistentQueue("jobs", store=stores[0], clock=clock, maxsize=1)
    second: Queue = PersistentQueue("jobs", store=stores[1], clock=clock)

    first.put("a")

    assert second.settings().maxsize == 1
    assert second.full()
    with pytest.raises(Full):
        second.put_nowait("b")
    for store in stores:
        store.close()


# --- pause --------------------------------------------------------------------------------------
def test_a_pause_stops_delivery_for_every_object(queue: Queue, new_queue: NewQueue) -> None:
    queue.put("a")
    other = new_queue()

    other.pause()

    assert queue.settings().paused
    for one in (queue, other, new_queue()):
        with pytest.raises(Empty):
            one.get(block=False)
    assert queue.qsize() == 1

    queue.resume()

    assert not other.settings().paused
    assert other.get(block=False) == "a"


def test_puts_and_settlements_go_on_during_a_pause(queue: Queue) -> None:
    queue.put("running")
    running = queue.get_message()
    queue.pause()

    queue.put("waits")

    assert queue.ack(running)
    assert queue.stats().ready == 1


def test_a_pause_is_an_operators_event_and_overwrites_nobodys_settings(
    new_queue: NewQueue,
) -> None:
    mine = new_queue(maxsize=3)
    mine.put("a")

    new_queue().pause()
    mine.put("b")

    [event] = [event for event in mine.journal() if event.detail == {"paused": True}]
    assert (event.kind, event.by) == ("configured", "operator")


def test_pausing_twice_is_pausing(queue: Queue) -> None:
    queue.pause()
    queue.pause()
    queue.resume()

    queue.put("a")

    assert queue.get(block=False) == "a"
