"""What happened, in order: positions, histories, readers, and what is kept."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.codec import JSON_CODEC
from localqueue.errors import JournalForeign, JournalTrimmed
from localqueue.policies import Journal
from localqueue.stores.memory import MemoryQueueStore
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, kinds

A_FOLD = 2_100
"""More events than the journal holds before it counts and trims."""


def happen(queue: Queue, events: int = A_FOLD) -> None:
    """Let so many events happen to a queue that counting and trimming come round."""
    for _ in range(3):
        queue.put_many(range(events // 3))
        queue.ack_many(queue.get_messages(10_000))


def test_a_life_is_told_in_order(queue: Queue, clock: ManualClock) -> None:
    message = queue.put("a")
    clock.advance(2)
    leased = queue.get_message(leased_by="w1")
    clock.advance(3)
    queue.release(leased, error=OSError("disk 7"))
    clock.advance(5)
    leased = queue.get_message(leased_by="w2")
    clock.advance(1)
    queue.ack(leased)

    life = queue.history(message.id)

    assert [(event.kind, event.attempt, event.worker) for event in life] == [
        ("enqueued", None, None),
        ("leased", 1, "w1"),
        ("released", 1, "w1"),
        ("leased", 2, "w2"),
        ("acked", 2, "w2"),
    ]
    released, acked = life[2], life[4]
    assert (released.error_type, released.error_text) == ("OSError", "disk 7")
    assert (released.waited, released.ran) == (2, 3)
    assert (acked.waited, acked.ran, acked.enqueued_at) == (5, 1, clock.wall() - 11)
    assert [event.at for event in life] == [clock.wall() - back for back in (11, 9, 6, 1, 0)]


def test_errors_that_differ_in_numbers_only_have_one_fingerprint(queue: Queue) -> None:
    for text in ("row 17 is bad", "row 18 is bad", "no row"):
        queue.put(text)
        queue.dead_letter(queue.get_message(), error=ValueError(text))

    first, second, third = (e.fingerprint for e in queue.journal() if e.kind == "dead_lettered")

    assert first == second != third


def test_positions_read_on_from_where_one_was(queue: Queue) -> None:
    queue.put_many(["a", "b", "c"])
    whole = queue.journal()

    pages, position = [], None
    while page := queue.journal(after=position, limit=2):
        pages += page
        position = page[-1].position

    assert pages == whole
    assert kinds(whole) == ["configured", "enqueued", "enqueued", "enqueued"]
    queue.put("d")
    assert kinds(queue.journal(after=position)) == ["enqueued"]


def test_a_queue_tells_of_itself_only(queue: Queue, new_queue: NewQueue) -> None:
    queue.put("a")
    new_queue("other").put("b")

    assert {event.queue for event in queue.journal()} == {"jobs"}


def test_a_position_of_another_store_is_refused(queue: Queue, new_queue: NewQueue) -> None:
    elsewhere = new_queue(store=MemoryQueueStore())
    elsewhere.put("a")
    queue.put("a")

    with pytest.raises(JournalForeign):
        queue.journal(after=elsewhere.journal()[-1].position)


def test_an_operators_act_is_told_as_such(queue: Queue) -> None:
    message = queue.put("a")

    queue.ack(message.id)

    assert queue.history(message.id)[-1].by == "operator"


def test_payloads_are_kept_where_the_policy_says_so(new_queue: NewQueue) -> None:
    queue = new_queue(journal_policy=Journal(payloads=True))
    message = queue.put({"a": 1})
    queue.ack(queue.get_message())

    [enqueued, *rest] = queue.history(message.id)

    assert enqueued.body is not None
    assert JSON_CODEC.decode(enqueued.body) == {"a": 1}
    assert {event.body for event in rest} == {None}
    plain = new_queue("plain").put("a")
    assert new_queue("plain").history(plain.id)[0].body is None


# --- attempt history ----------------------------------------------------------------------------
def test_inspect_shows_the_present_lease_and_every_attempt_that_ended(
    queue: Queue, clock: ManualClock
) -> None:
    message = queue.put("a")
    began = clock.wall()
    queue.release(queue.get_message(leased_by="w1"), error=ValueError("boom"))
    clock.advance(1)
    queue.get_message(leased_by="w2")
    clock.advance(30)
    queue.get_message()

    found = queue.inspect(message.id)

    assert found is not None
    boom: dict[str, Any] = {"type": "ValueError", "module": "builtins", "message": "boom"}
    assert found.attempt_history == [
        {"type": "leased", "at": began, "attempt": 1, "leased_by": "w1"},
        {"type": "released", "at": began, "attempt": 1, "leased_by": "w1", "last_error": boom},
        {"type": "leased", "at": began + 1, "attempt": 2, "leased_by": "w2"},
        {"type": "lease_expired", "at": began + 31, "attempt": 2, "leased_by": "w2"},
        {"type": "leased", "at": began + 31, "attempt": 3},
    ]


def test_attempts_are_remembered_also_where_the_journal_is_off(new_queue: NewQueue) -> None:
    queue = new_queue(journal_policy=Journal(enabled=False))
    message = queue.put("a")
    queue.release(queue.get_message(), error="no")
    happen(new_queue("busy"))

    found = queue.inspect(message.id)

    assert found is not None
    assert [entry["type"] for entry in found.attempt_history] == ["leased", "released"]


def test_the_history_of_one_message_is_capped_and_keeps_its_first_and_last_attempts(
    queue: Queue,
) -> None:
    message = queue.put("a")
    for number in range(100):
        queue.release(queue.get_message(block=False), error=f"failure {number}")

    found = queue.inspect(message.id)

    assert found is not None
    errors = [entry["last_error"]["message"] for entry in found.attempt_history[1::2]]
    assert len(errors) == 64
    assert (errors[0], errors[-1]) == ("failure 0", "failure 99")
    assert found.failures == 100


# --- what is kept -------------------------------------------------------------------------------
def test_events_beyond_the_rows_of_the_policy_are_let_go_and_that_is_told(
    new_queue: NewQueue,
) -> None:
    queue = new_queue(journal_policy=Journal(max_rows=10))
    queue.put("first")
    position = queue.journal()[-1].position

    happen(queue)

    assert len(queue.journal(limit=10_000)) < A_FOLD
    with pytest.raises(JournalTrimmed):
        queue.journal(after=position)
    assert queue.stats().total == 0


def test_events_older_than_the_age_of_the_policy_are_let_go(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    queue = new_queue(journal_policy=Journal(max_age=60))
    old = queue.put("old")
    queue.ack(queue.get_message())
    clock.advance(60)
    young = queue.put("young")

    happen(queue)

    assert queue.history(old.id) == []
    assert kinds(queue.history(young.id))[0] == "enqueued"


def test_what_is_kept_is_each_queues_own(new_queue: NewQueue) -> None:
    kept = new_queue("kept")
    message = kept.put("a")
    busy = new_queue("busy", journal_policy=Journal(enabled=False))

    happen(busy)

    assert kinds(kept.journal())[:2] == ["configured", "enqueued"]
    assert kinds(kept.history(message.id)) == ["enqueued"]
    assert len(busy.journal(limit=10_000)) < A_FOLD


def test_a_registered_reader_keeps_what_it_has_not_read_within_its_own_limit(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    queue = new_queue(journal_policy=Journal(max_age=1))
    message = queue.put("a")
    reader = queue.register_reader("billing", max_age=3600)
    clock.advance(60)

    happen(queue)
    events = queue.journal(after=reader.position, limit=10)

    assert events[1].message_id == message.id
    assert queue.history(message.id)[0].kind == "enqueued"

    clock.advance(3600)
    happen(queue)
    with pytest.raises(JournalTrimmed):
        queue.journal(after=reader.position)


def test_what_a_reader_has_is_kept_for_it_no_longer(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    queue = new_queue(journal_policy=Journal(max_age=1))
    message = queue.put("a")
    queue.register_reader("billing")
    queue.commit_reader("billing", queue.journal()[-1].position)
    clock.advance(60)

    happen(queue)

    assert "enqueued" not in kinds(queue.history(message.id))


def test_readers_are_listed_and_dropped(queue: Queue, clock: ManualClock) -> None:
    queue.put("a")
    end = queue.journal()[-1].position

    queue.register_reader("billing", end, max_age=60)

    [reader] = queue.readers()
    assert (reader.name, reader.position, reader.max_age) == ("billing", end, 60)
    assert reader.updated_at == clock.wall()
    assert queue.drop_reader("billing")
    assert not queue.drop_reader("billing")
    assert queue.readers() == []


def test_a_fold_tells_the_exact_counts(queue: Queue) -> None:
    queue.put_many(range(2_500))
    queue.get_messages(3)

    counted = [event for event in queue.journal(limit=10_000) if event.kind == "counted"]

    assert counted
    assert counted[-1].detail is not None
    assert sum(counted[-1].detail.values()) == 2_500
