"""Threads of this process are woken after a put."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from localqueue.adapters.notification import InProcessNotification
from localqueue.errors import InvalidArgument, WrongType
from localqueue.message import QueueMessage
from localqueue.policies import AwaitableNotification, WaitableNotification

MESSAGE: QueueMessage[Any] = QueueMessage("1", {"job": 1}, "jobs")
PATIENCE = 10.0


class Waiting(threading.Thread):
    """Waits in a thread and keeps the answer."""

    def __init__(self, notification: InProcessNotification) -> None:
        super().__init__(daemon=True)
        self.notification = notification
        self.answer: bool | None = None
        self.start()

    def run(self) -> None:
        self.answer = self.notification.wait()

    def ended_with(self, answer: bool) -> bool:
        self.join(PATIENCE)
        return self.answer is answer


def test_a_put_wakes_every_waiting_thread() -> None:
    notification = InProcessNotification()
    waiting = [Waiting(notification) for _ in range(3)]

    notification.notify(MESSAGE)

    assert all(thread.ended_with(True) for thread in waiting)


def test_a_notification_stays_until_it_is_cleared() -> None:
    notification = InProcessNotification()
    notification.notify(MESSAGE)

    assert notification.wait(timeout=0)
    assert notification.wait(timeout=0)

    notification.clear()

    assert not notification.wait(timeout=0)


def test_an_event_of_the_users_own_is_set() -> None:
    event = threading.Event()

    InProcessNotification(event).notify(MESSAGE)

    assert event.is_set()


def test_it_can_be_waited_for_by_threads_only() -> None:
    notification = InProcessNotification()

    assert isinstance(notification, WaitableNotification)
    assert not isinstance(notification, AwaitableNotification)


@pytest.mark.parametrize(
    ("timeout", "error"), [(-1, InvalidArgument), (math.nan, InvalidArgument), ("1", WrongType)]
)
def test_a_bad_timeout_is_refused(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout"):
        InProcessNotification().wait(timeout)


def test_closing_wakes_whoever_waits_and_tells_them_that_there_was_no_put() -> None:
    with InProcessNotification() as notification:
        waiting = [Waiting(notification) for _ in range(3)]

    assert all(thread.ended_with(False) for thread in waiting)
    assert notification.closed


def test_nobody_waits_for_a_closed_notification_again() -> None:
    notification = InProcessNotification()
    notification.close()
    notification.close()

    notification.notify(MESSAGE)
    notification.clear()

    assert Waiting(notification).ended_with(False)


def test_a_put_after_closing_does_not_set_the_users_event() -> None:
    event = threading.Event()
    notification = InProcessNotification(event)
    notification.close()
    event.clear()

    notification.notify(MESSAGE)

    assert not event.is_set()
