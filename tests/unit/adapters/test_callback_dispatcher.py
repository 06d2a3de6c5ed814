"""Handlers are called in the producer's thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from localqueue.adapters.dispatch import CallbackDispatcher
from localqueue.errors import InvalidArgument, LocalQueueError, StoreError, WrongType
from localqueue.message import QueueMessage

MESSAGE: QueueMessage[Any] = QueueMessage("1", {"job": 1}, "jobs")
PATIENCE = 10.0


def test_every_handler_is_called_in_order_in_the_callers_thread() -> None:
    calls: list[tuple[str, Any, int]] = []
    dispatcher = CallbackDispatcher(
        lambda m, name=name: calls.append((name, m, threading.get_ident()))  # type: ignore[misc]
        for name in ("first", "second")
    )

    dispatcher.dispatch(MESSAGE)

    here = threading.get_ident()
    assert calls == [("first", MESSAGE, here), ("second", MESSAGE, here)]
    assert dispatcher.handler_count == 2


def test_the_first_error_ends_the_dispatch_and_surfaces() -> None:
    calls: list[Any] = []

    def fail(message: QueueMessage[Any]) -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        CallbackDispatcher([calls.append, fail, calls.append]).dispatch(MESSAGE)

    assert calls == [MESSAGE]


@pytest.mark.parametrize(
    ("handlers", "error", "sentence"),
    [
        ([], InvalidArgument, "handlers cannot be empty"),
        (print, WrongType, "handlers must be an iterable of callables"),
        (None, WrongType, "handlers must be an iterable of callables"),
        ([print, "print"], WrongType, "handlers must be callable, not str"),
    ],
)
def test_what_is_no_list_of_functions_is_refused(
    handlers: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        CallbackDispatcher(handlers)


def test_a_closed_dispatcher_refuses_so_that_nothing_passes_for_handled() -> None:
    calls: list[Any] = []

    with CallbackDispatcher([calls.append]) as dispatcher:
        dispatcher.dispatch(MESSAGE)
    with pytest.raises(LocalQueueError, match="message 1 is stored") as refused:
        dispatcher.dispatch(MESSAGE)

    assert calls == [MESSAGE]
    assert dispatcher.closed
    assert not isinstance(refused.value, StoreError)


def test_closing_waits_until_a_running_handler_is_done() -> None:
    inside, finish = threading.Event(), threading.Event()

    def handle(message: QueueMessage[Any]) -> None:
        inside.set()
        finish.wait(PATIENCE)

    dispatcher = CallbackDispatcher([handle])
    putting = threading.Thread(target=dispatcher.dispatch, args=(MESSAGE,))
    putting.start()
    assert inside.wait(PATIENCE)

    assert not dispatcher.close(timeout=0)

    finish.set()
    assert dispatcher.close(timeout=PATIENCE)
    putting.join(PATIENCE)


def test_a_handler_may_close_its_own_dispatcher() -> None:
    calls: list[Any] = []
    dispatcher = CallbackDispatcher([lambda m: dispatcher.close(), calls.append])

    dispatcher.dispatch(MESSAGE)

    assert dispatcher.closed
    assert calls == [MESSAGE]


def test_a_handler_that_raises_does_not_hold_up_closing() -> None:
    def fail(message: QueueMessage[Any]) -> None:
        raise LookupError

    dispatcher = CallbackDispatcher([fail])

    def put() -> None:
        with pytest.raises(LookupError):
            dispatcher.dispatch(MESSAGE)

    putting = threading.Thread(target=put)
    putting.start()
    putting.join(PATIENCE)

    assert dispatcher.close(timeout=0)
