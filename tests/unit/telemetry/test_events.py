"""Every kind of event is told once by each of its causes, and says what happened."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from queue import Empty
from typing import Any

import pytest

from localqueue.adapters.dispatch import CallbackDispatcher
from localqueue.adapters.notification import CallbackNotification
from localqueue.codec import BytesCodec
from localqueue.errors import DamagedMessage
from localqueue.message import QueueMessage
from localqueue.outcome import Ack, Cancel, Crashed, DeadLetter, Release, Settlement
from localqueue.policies import (
    AtMostOnceDelivery,
    DropNewestBackpressure,
    OverflowBackpressure,
    PublishSubscribeRouting,
    StaticFanoutSubscriptions,
)
from localqueue.stores.protocol import Settled
from localqueue.telemetry import events
from localqueue.telemetry.events import (
    EVENTS,
    Acked,
    Cancelled,
    DeadLettered,
    Dispatched,
    Dropped,
    Duplicated,
    Enqueued,
    Event,
    HandlerEnded,
    HandlerStarted,
    Leased,
    LeaseExpired,
    Notified,
    Purged,
    Released,
    Requeued,
    Retried,
    StaleReceipt,
)
from localqueue.testing import ManualClock
from tests.unit.telemetry.phrases import Heard, NewQueue, Queue

Calls = Callable[[Queue], Any]


# --- putting ------------------------------------------------------------------------------------
def test_a_put_is_enqueued(queue: Queue, calls: Calls, heard: Heard, clock: ManualClock) -> None:
    message = calls(queue).put("a")

    assert heard.take() == [Enqueued(queue="jobs", at=clock.wall(), message_id=message.id)]


def test_each_message_of_a_batch_is_enqueued(queue: Queue, calls: Calls, heard: Heard) -> None:
    messages = calls(queue).put_many(["a", "b", "c"])

    assert [event.message_id for event in heard.events] == [message.id for message in messages]
    assert heard.kinds() == ["enqueued"] * 3


def test_each_message_of_a_large_batch_is_enqueued_leased_and_acked(
    queue: Queue, calls: Calls, heard: Heard
) -> None:
    calls(queue).put_many(range(300))
    calls(queue).ack_many(calls(queue).get_messages(300))

    assert heard.kinds() == ["enqueued"] * 300 + ["leased"] * 300 + ["acked"] * 300
    assert len({event.message_id for event in heard.events}) == 300


def test_each_message_of_a_stream_is_enqueued(queue: Queue, calls: Calls, heard: Heard) -> None:
    calls(queue).put_stream(["a", "b", "c"], chunk=2)

    assert heard.kinds() == ["enqueued"] * 3


def test_a_taken_key_is_told_apart(queue: Queue, calls: Calls, heard: Heard) -> None:
    first = calls(queue).put("a", dedupe_key="k")
    heard.take()

    calls(queue).put("a", dedupe_key="k")
    calls(queue).put_many(["a", "b"], dedupe_key=lambda value: {"a": "k", "b": "other"}[value])

    told = heard.take()
    assert [type(event) for event in told] == [Duplicated, Duplicated, Enqueued]
    assert told[0].message_id == told[1].message_id == first.id


def test_a_put_that_a_full_queue_lets_go_of_is_told_apart(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    queue = new_queue(backpressure=DropNewestBackpressure(1))

    calls(queue).put("a")
    calls(queue).put("b")

    assert [type(event) for event in heard.events] == [Enqueued, Dropped]


def test_a_put_that_overflows_into_the_dead_letters_is_enqueued_and_dead_lettered(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    queue = new_queue(backpressure=OverflowBackpressure(1))
    calls(queue).put("a")
    heard.take()

    message = calls(queue).put("b")

    assert heard.kinds() == ["enqueued", "dead_lettered"]
    assert {event.message_id for event in heard.events} == {message.id}
    assert heard.events[1].as_dict()["error_type"] == "QueueFull"


def test_a_put_that_overflows_into_another_queue_is_enqueued_there(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    queue = new_queue(backpressure=OverflowBackpressure(1, to="more"))
    calls(queue).put("a")
    heard.take()

    calls(queue).put("b")

    event = heard.only()
    assert (event.kind, event.queue) == ("enqueued", "more")


def test_a_publication_is_enqueued_once_for_each_subscriber(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    topic = new_queue(
        "news",
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=StaticFanoutSubscriptions(["a", "b"]),
    )

    calls(topic).put("hello")

    assert [(event.kind, event.queue) for event in heard.take()] == [
        ("enqueued", "news.a"),
        ("enqueued", "news.b"),
    ]


def test_a_subscribers_queue_has_the_listeners_of_its_topic(
    new_queue: NewQueue, heard: Heard
) -> None:
    topic = new_queue(
        "news",
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=StaticFanoutSubscriptions(["a"]),
    )
    topic.put("hello")
    heard.take()

    topic.subscriber_queue("a").get_message()

    event = heard.only()
    assert (event.kind, event.queue) == ("leased", "news.a")


def test_a_refused_put_is_no_event(queue: Queue, calls: Calls, heard: Heard) -> None:
    with pytest.raises(ValueError, match="JSON"):
        calls(queue).put(object())

    assert heard.take() == []


# --- delivery -----------------------------------------------------------------------------------
@pytest.mark.parametrize("get", ["get", "get_message", "get_nowait"])
def test_a_get_is_leased_with_how_long_the_message_waited(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock, get: str
) -> None:
    message = calls(queue).put("a")
    clock.advance(5)
    heard.take()

    getattr(calls(queue), get)()

    assert heard.take() == [
        Leased(queue="jobs", at=clock.wall(), message_id=message.id, attempt=1, waited=5.0)
    ]


def test_a_delayed_message_waits_from_when_it_is_due(
    queue: Queue, heard: Heard, clock: ManualClock
) -> None:
    queue.put("a", delay=10)
    clock.advance(12)
    heard.take()

    queue.get_message()

    assert heard.only().as_dict()["waited"] == 2.0


def test_each_message_of_a_batch_is_leased(queue: Queue, calls: Calls, heard: Heard) -> None:
    calls(queue).put_many(["a", "b"])
    heard.take()

    calls(queue).get_messages(5, leased_by="worker-1")

    assert heard.kinds() == ["leased", "leased"]
    assert {event.worker for event in heard.events} == {"worker-1"}


def test_a_get_that_finds_nothing_is_no_event(queue: Queue, heard: Heard) -> None:
    assert queue.qsize() == 0
    with pytest.raises(Empty):
        queue.get_nowait()

    assert heard.take() == []


def test_at_most_once_is_leased_and_acked_in_one(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    queue = new_queue(delivery_policy=AtMostOnceDelivery())
    calls(queue).put("a")
    heard.take()

    calls(queue).get_message()

    assert heard.kinds() == ["leased", "acked"]


def test_a_lease_that_expired_is_told_with_the_next_one(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock
) -> None:
    message = calls(queue).put("a")
    calls(queue).get_message(leased_by="worker-1")
    clock.advance(31)
    heard.take()

    calls(queue).get_message(leased_by="worker-2")

    expired, leased = heard.take()
    assert expired == LeaseExpired(
        queue="jobs", at=clock.wall(), message_id=message.id, attempt=1, worker="worker-1"
    )
    assert isinstance(leased, Leased)
    assert (leased.attempt, leased.worker) == (2, "worker-2")


def test_a_lease_after_a_release_tells_of_no_expiry(queue: Queue, heard: Heard) -> None:
    queue.put("a")
    queue.release(queue.get_message(), error="later")
    heard.take()

    queue.get_message()

    assert heard.kinds() == ["leased"]


def test_what_cannot_be_decoded_is_dead_lettered_and_not_leased(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    new_queue(codec_policy=BytesCodec(), listeners=()).put(b"\xff")
    queue = new_queue(codec_policy=Picky())

    with pytest.raises(Empty):
        calls(queue).get_nowait()

    event = heard.only()
    assert isinstance(event, DeadLettered)
    assert event.error_type == "DamagedMessage"


class Picky(BytesCodec):
    """Reads what says that it is bytes, and finds that it is not."""

    def decode(self, body: bytes) -> bytes:
        raise DamagedMessage("not what was put")


# --- settling -----------------------------------------------------------------------------------
@pytest.fixture
def leased(queue: Queue, heard: Heard, clock: ManualClock) -> QueueMessage[Any]:
    """A message that worker-1 has had for three seconds."""
    queue.put("a")
    message = queue.get_message(leased_by="worker-1")
    clock.advance(3)
    heard.take()
    return message


def about(message: QueueMessage[Any], clock: ManualClock) -> dict[str, Any]:
    return {
        "queue": "jobs",
        "at": clock.wall(),
        "message_id": message.id,
        "attempt": 1,
        "worker": "worker-1",
    }


def test_an_ack_is_acked_with_how_long_it_ran(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock, leased: QueueMessage[Any]
) -> None:
    calls(queue).ack(leased)

    assert heard.take() == [Acked(**about(leased, clock), ran=3.0)]


def test_each_message_of_ack_many_is_acked(
    queue: Queue, calls: Calls, heard: Heard, leased: QueueMessage[Any]
) -> None:
    other = calls(queue).put("b")
    heard.take()

    calls(queue).ack_many([leased, other.id])

    assert [(event.kind, event.attempt) for event in heard.take()] == [
        ("acked", 1),
        ("acked", None),
    ]


def test_task_done_is_acked(queue: Queue, heard: Heard) -> None:
    queue.put("a")
    queue.get()
    heard.take()

    queue.task_done()

    assert heard.kinds() == ["acked"]


def test_an_operators_ack_is_acked_without_an_attempt(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock, leased: QueueMessage[Any]
) -> None:
    calls(queue).ack(leased.id)

    assert heard.take() == [Acked(queue="jobs", at=clock.wall(), message_id=leased.id)]


def test_a_release_without_an_error_is_released(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock, leased: QueueMessage[Any]
) -> None:
    calls(queue).release(leased, delay=7)

    assert heard.take() == [Released(**about(leased, clock), ran=3.0, delay=7.0)]


@pytest.mark.parametrize(("error", "name"), [(OSError("disk"), "OSError"), ("a text", None)])
def test_a_release_with_an_error_is_retried(
    queue: Queue,
    calls: Calls,
    heard: Heard,
    clock: ManualClock,
    leased: QueueMessage[Any],
    error: BaseException | str,
    name: str | None,
) -> None:
    calls(queue).release(leased, delay=7, error=error)

    assert heard.take() == [Retried(**about(leased, clock), ran=3.0, delay=7.0, error_type=name)]


def test_giving_up_is_dead_lettered(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock, leased: QueueMessage[Any]
) -> None:
    calls(queue).dead_letter(leased, KeyError("k"))

    assert heard.take() == [DeadLettered(**about(leased, clock), ran=3.0, error_type="KeyError")]


SETTLE: dict[str, Callable[[Any, QueueMessage[Any]], object]] = {
    "ack": lambda queue, message: queue.ack(message),
    "release": lambda queue, message: queue.release(message, error="x"),
    "dead_letter": lambda queue, message: queue.dead_letter(message),
    "extend": lambda queue, message: queue.extend(message),
}


@pytest.mark.parametrize("call", SETTLE)
def test_a_call_that_comes_too_late_is_a_stale_receipt(
    queue: Queue,
    calls: Calls,
    heard: Heard,
    clock: ManualClock,
    leased: QueueMessage[Any],
    call: str,
) -> None:
    clock.advance(60)
    queue.get_message(leased_by="worker-2")
    heard.take()

    SETTLE[call](calls(queue), leased)

    assert heard.take() == [StaleReceipt(**about(leased, clock), call=call)]


def test_an_operators_id_that_is_unknown_is_no_stale_receipt(queue: Queue, heard: Heard) -> None:
    queue.ack("0" * 32)

    assert heard.take() == []


def test_a_lease_that_is_held_longer_is_no_event(
    queue: Queue, calls: Calls, heard: Heard, leased: QueueMessage[Any]
) -> None:
    calls(queue).extend(leased)

    assert heard.take() == []


@pytest.mark.parametrize(
    ("settlement", "kind"),
    [
        (Ack(), "acked"),
        (Release(1.0), "released"),
        (Release(1.0, {"type": "OSError"}), "retried"),
        (DeadLetter({"type": "OSError"}), "dead_lettered"),
        (Crashed({"type": "OSError"}), "crashed"),
        (Cancel(), "cancelled"),
    ],
)
def test_a_worker_announces_how_it_settled(
    queue: Queue, heard: Heard, leased: QueueMessage[Any], settlement: Settlement, kind: str
) -> None:
    announce = queue.telemetry.announce
    assert announce is not None

    announce.settled([leased], [settlement], [Settled.DONE])
    done = heard.only()
    announce.settled([leased], [settlement], [Settled.STALE])
    stale = heard.only()
    announce.settled([leased], [settlement], [Settled.CONFLICT])

    assert (done.kind, done.worker, done.attempt) == (kind, "worker-1", 1)
    assert done.as_dict().get("error_type", "OSError") == "OSError"
    assert stale.as_dict()["call"] == "settle"
    assert heard.take() == []


# --- what people do -----------------------------------------------------------------------------
def test_a_dead_letter_that_is_put_back_is_requeued(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock, leased: QueueMessage[Any]
) -> None:
    calls(queue).dead_letter(leased)
    heard.take()

    calls(queue).requeue_dead(leased.id, delay=2)
    calls(queue).requeue_dead(leased.id)

    assert heard.take() == [
        Requeued(queue="jobs", at=clock.wall(), message_id=leased.id, delay=2.0)
    ]


def test_every_dead_letter_that_is_put_back_with_others_is_requeued(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock, leased: QueueMessage[Any]
) -> None:
    letters = [leased, calls(queue).put("b")]
    for letter in letters:
        calls(queue).dead_letter(letter)
    heard.take()

    calls(queue).requeue_dead_letters(delay=2)
    calls(queue).requeue_dead_letters()

    assert heard.take() == [
        Requeued(queue="jobs", at=clock.wall(), message_id=letter.id, delay=2.0)
        for letter in letters
    ]


def test_a_cancelled_message_was_removed_or_its_holder_asked(
    queue: Queue, calls: Calls, heard: Heard, clock: ManualClock, leased: QueueMessage[Any]
) -> None:
    waiting = calls(queue).put("b")
    heard.take()

    calls(queue).cancel(waiting)
    calls(queue).cancel(leased.id)
    calls(queue).cancel(waiting)

    at = clock.wall()
    assert heard.take() == [
        Cancelled(queue="jobs", at=at, message_id=waiting.id, removed=True),
        Cancelled(queue="jobs", at=at, message_id=leased.id, removed=False),
    ]


def test_a_purge_is_one_event(queue: Queue, calls: Calls, heard: Heard, clock: ManualClock) -> None:
    calls(queue).put_many(["a", "b"])
    heard.take()

    calls(queue).purge()

    assert heard.take() == [Purged(queue="jobs", at=clock.wall(), n=2)]


# --- notification, dispatch, handlers -------------------------------------------------------------
def test_notification_and_dispatch_follow_the_put(
    new_queue: NewQueue, calls: Calls, heard: Heard, clock: ManualClock
) -> None:
    queue = new_queue(
        notification_policy=CallbackNotification(lambda _: None),
        dispatch_policy=CallbackDispatcher([lambda _: None]),
    )

    message = calls(queue).put("a")

    enqueued, notified, dispatched = heard.take()
    assert isinstance(enqueued, Enqueued)
    assert isinstance(notified, Notified)
    assert isinstance(dispatched, Dispatched)
    for event in (notified, dispatched):
        assert event.message_id == message.id
        assert 0 <= event.took < 10
        assert event.error_type is None


def test_a_notification_that_raises_is_told_with_its_error_and_prevents_dispatch(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    queue = new_queue(
        notification_policy=CallbackNotification(raises),
        dispatch_policy=CallbackDispatcher([lambda _: None]),
    )

    with pytest.raises(LookupError):
        calls(queue).put("a")

    assert [(e.kind, e.as_dict().get("error_type")) for e in heard.take()] == [
        ("enqueued", None),
        ("notified", "LookupError"),
    ]


def raises(message: QueueMessage[Any]) -> None:
    raise LookupError(message.id)


def test_dispatching_what_is_pending_tells_the_whole_life(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    new_queue(listeners=()).put("a")
    queue = new_queue(dispatch_policy=CallbackDispatcher([lambda _: None]))

    calls(queue).dispatch_pending()

    assert heard.kinds() == ["leased", "handler_started", "dispatched", "handler_ended", "acked"]


def test_a_dispatch_that_raises_is_told_with_its_error_and_retried(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    new_queue(listeners=()).put("a")
    queue = new_queue(dispatch_policy=CallbackDispatcher([raises]))

    with pytest.raises(LookupError):
        calls(queue).dispatch_pending()

    assert [(e.kind, e.as_dict().get("error_type")) for e in heard.take()] == [
        ("leased", None),
        ("handler_started", None),
        ("dispatched", "LookupError"),
        ("handler_ended", "LookupError"),
        ("retried", "LookupError"),
    ]


def test_a_handler_starts_and_ends(
    queue: Queue, heard: Heard, clock: ManualClock, leased: QueueMessage[Any]
) -> None:
    with queue.telemetry.handling(leased):
        assert heard.take() == [HandlerStarted(**about(leased, clock))]

    ended = heard.only()
    assert isinstance(ended, HandlerEnded)
    assert (ended.message_id, ended.attempt, ended.worker) == (leased.id, 1, "worker-1")
    assert ended.error_type is None
    assert 0 <= ended.took < 10


def test_what_a_handler_raises_passes_and_is_told(
    queue: Queue, heard: Heard, leased: QueueMessage[Any]
) -> None:
    with pytest.raises(ZeroDivisionError), queue.telemetry.handling(leased, "other"):
        raise ZeroDivisionError

    ended = heard.take()[1]
    assert (ended.worker, ended.as_dict()["error_type"]) == ("other", "ZeroDivisionError")


# --- all of them --------------------------------------------------------------------------------
def test_every_kind_has_a_name_of_its_own_and_is_listed() -> None:
    kinds = [event.kind for event in EVENTS]

    assert len(set(kinds)) == len(kinds)
    assert "event" not in kinds
    classes = [value for value in vars(events).values() if inspect.isclass(value)]
    assert set(EVENTS) == {cls for cls in classes if issubclass(cls, Event)} - {Event}


def test_an_event_as_a_dict_has_its_kind_and_what_is_known() -> None:
    event = Retried(queue="jobs", at=1.0, message_id="m", ran=2.0)

    assert event.as_dict() == {
        "event": "retried", "queue": "jobs", "at": 1.0, "message_id": "m", "ran": 2.0, "delay": 0.0,
    }  # fmt: skip
