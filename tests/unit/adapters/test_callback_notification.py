"""Listeners of this process are called after a put."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from localqueue.adapters.notification import CallbackNotification
from localqueue.errors import InvalidArgument, WrongType
from localqueue.message import QueueMessage

MESSAGE: QueueMessage[Any] = QueueMessage("1", {"job": 1}, "jobs")
PATIENCE = 10.0


def test_every_listener_gets_the_message_in_order() -> None:
    heard: list[tuple[str, Any]] = []
    notification = CallbackNotification(
        [lambda m: heard.append(("first", m)), lambda m: heard.append(("second", m))]
    )

    notification.notify(MESSAGE)

    assert heard == [("first", MESSAGE), ("second", MESSAGE)]
    assert notification.listener_count == 2


def test_one_function_is_enough() -> None:
    heard: list[Any] = []

    CallbackNotification(heard.append).notify(MESSAGE)

    assert heard == [MESSAGE]


def test_listeners_may_come_from_any_iterable() -> None:
    heard: list[Any] = []
    notification = CallbackNotification(function for function in (heard.append, heard.append))

    notification.notify(MESSAGE)

    assert heard == [MESSAGE, MESSAGE]


def test_a_listener_that_raises_keeps_nobody_else_from_hearing_and_its_error_surfaces() -> None:
    heard: list[Any] = []

    def fail(message: QueueMessage[Any]) -> None:
        raise LookupError("first")

    def fail_too(message: QueueMessage[Any]) -> None:
        raise KeyError("second")

    notification = CallbackNotification([fail, fail_too, heard.append])

    with pytest.raises(LookupError, match="first"):
        notification.notify(MESSAGE)

    assert heard == [MESSAGE]


@pytest.mark.parametrize(
    ("listeners", "error"),
    [([], InvalidArgument), (None, WrongType), (5, WrongType), (["print"], WrongType)],
)
def test_what_cannot_be_called_is_refused(listeners: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="listeners"):
        CallbackNotification(listeners)


def test_a_closed_notification_is_quiet() -> None:
    heard: list[Any] = []

    with CallbackNotification(heard.append) as notification:
        notification.notify(MESSAGE)
    notification.notify(MESSAGE)

    assert heard == [MESSAGE]
    assert notification.closed


def test_closing_waits_until_a_running_listener_is_done() -> None:
    inside, finish = threading.Event(), threading.Event()

    def listen(message: QueueMessage[Any]) -> None:
        inside.set()
        finish.wait(PATIENCE)

    notification = CallbackNotification(listen)
    putting = threading.Thread(target=notification.notify, args=(MESSAGE,))
    putting.start()
    assert inside.wait(PATIENCE)

    assert not notification.close(timeout=0)

    finish.set()
    assert notification.close(timeout=PATIENCE)
    putting.join(PATIENCE)


def test_a_listener_that_raises_does_not_hold_up_closing() -> None:
    def fail(message: QueueMessage[Any]) -> None:
        raise LookupError

    notification = CallbackNotification(fail)

    def put() -> None:
        with pytest.raises(LookupError):
            notification.notify(MESSAGE)

    putting = threading.Thread(target=put)
    putting.start()
    putting.join(PATIENCE)

    assert notification.close(timeout=0)


def test_an_interrupt_reaches_the_caller_at_once_and_does_not_hold_up_closing() -> None:
    heard: list[Any] = []

    def interrupt(message: QueueMessage[Any]) -> None:
        raise KeyboardInterrupt

    notification = CallbackNotification([interrupt, heard.append])

    with pytest.raises(KeyboardInterrupt):
        notification.notify(MESSAGE)

    assert heard == []
    assert notification.close(timeout=0)
