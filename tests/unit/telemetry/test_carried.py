"""A handler in another process runs whether its trace can be continued there or not."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from typing import Any

import pytest

from localqueue.errors import HandlerTimeout
from localqueue.telemetry import carrier
from localqueue.telemetry.carried import called_inside

CARRIED = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def called(function: Callable[[Any], Any], value: Any) -> Any:
    # In a context of its own: a trace that is not left must not be that of other tests.
    return contextvars.copy_context().run(called_inside, CARRIED, function, value)


def fails(*_: Any) -> Any:
    raise RuntimeError("of tracing")


def double(value: int) -> int:
    return 2 * value


@pytest.mark.parametrize("step", ["attach", "detach"])
def test_a_trace_that_cannot_be_continued_fails_no_handler(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(carrier, step, fails)

    assert called(double, 21) == 42


def test_a_process_without_opentelemetry_runs_its_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "localqueue.telemetry.carrier", None)

    assert called(double, 21) == 42


def test_what_the_handler_raises_is_raised_and_not_what_tracing_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carrier, "detach", fails)

    with pytest.raises(ZeroDivisionError):
        called(lambda value: value / 0, 1)


def test_a_handler_that_is_told_to_end_before_it_is_called_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_told(_: Any) -> Any:
        raise HandlerTimeout("the handler ran longer than 1 seconds")

    monkeypatch.setattr(carrier, "attach", is_told)

    with pytest.raises(HandlerTimeout):
        called(fails, 1)
