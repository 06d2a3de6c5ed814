"""Without a listener nothing is made, and nothing is even loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from localqueue.adapters.dispatch import CallbackDispatcher
from localqueue.adapters.notification import CallbackNotification
from localqueue.telemetry import announcer, events
from localqueue.telemetry.events import EVENTS
from tests.unit.telemetry.phrases import Heard, NewQueue, Queue

USE = """
import sys
from localqueue import MemoryQueueStore, PersistentQueue

queue = PersistentQueue("jobs", store=MemoryQueueStore())
queue.put("a")
queue.put_many(["b", "c"])
queue.release(queue.get_message(), error=OSError("x"))
queue.ack(queue.get_message())
queue.dead_letter(queue.get_message())
queue.purge()
print(*(name for name in sys.modules if name.startswith("localqueue.telemetry.")))
"""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all events that are made, as they are made."""
    kinds: list[str] = []
    for kind in EVENTS:

        def make(kind: Any = kind, **fields: Any) -> Any:
            kinds.append(kind.kind)
            return kind(**fields)

        # The announcer has some of them by name and some by their module.
        monkeypatch.setattr(events, kind.__name__, make)
        monkeypatch.setattr(announcer, kind.__name__, make, raising=False)
    return kinds


def live(queue: Any) -> None:
    """Everything that an event is made of, when somebody listens."""
    first = queue.put("a", dedupe_key="k")
    queue.put("a", dedupe_key="k")
    queue.put_many(["b", "c"])
    queue.release(queue.get_message(), error=OSError("x"))
    queue.release(queue.get_message())
    queue.extend(queue.get_message())
    queue.dead_letter(queue.get_message())
    queue.ack_many(queue.get_messages(1))
    queue.put("e")
    queue.dispatch_pending()
    queue.cancel(queue.put("d"))
    queue.ack(first)
    queue.purge()


def hooked(new_queue: NewQueue, **options: Any) -> Queue:
    return new_queue(
        notification_policy=CallbackNotification(lambda _: None),
        dispatch_policy=CallbackDispatcher([lambda _: None]),
        **options,
    )


def test_without_a_listener_no_event_is_made(
    new_queue: NewQueue, calls: Callable[[Queue], Any], made: list[str]
) -> None:
    live(calls(hooked(new_queue, listeners=())))

    assert made == []


def test_with_a_listener_the_same_makes_events(
    new_queue: NewQueue, calls: Callable[[Queue], Any], made: list[str], heard: Heard
) -> None:
    live(calls(hooked(new_queue)))

    assert made == heard.kinds()
    assert set(made) >= {
        "enqueued", "duplicated", "leased", "acked", "released", "retried", "dead_lettered",
        "notified", "dispatched", "handler_started", "handler_ended", "cancelled", "purged",
    }  # fmt: skip


def test_after_the_last_listener_stopped_no_event_is_made(
    new_queue: NewQueue, made: list[str]
) -> None:
    queue = hooked(new_queue, listeners=())
    queue.listen(Heard())()

    live(queue)

    assert made == []
    assert queue.telemetry.announce is None
    assert not queue.telemetry.active


def loaded_by(program: str) -> set[str]:
    answer = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


def test_without_a_listener_the_classes_of_events_are_not_loaded() -> None:
    listening = USE.replace("MemoryQueueStore())", "MemoryQueueStore(), listeners=[id])")

    assert "localqueue.telemetry.events" not in loaded_by(USE)
    assert "localqueue.telemetry.events" in loaded_by(listening)
