"""The trace of a handler on its way to the process that the handler runs in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from localqueue.errors import LocalQueueError

R = TypeVar("R")


def carried_trace() -> dict[str, str] | None:
    """What the calling thread is traced in, as plain values; None if in nothing.

    Nothing is loaded for that: who traces has OpenTelemetry loaded. Never raises.
    """
    if "opentelemetry.trace" not in sys.modules:
        return None
    try:
        from localqueue.telemetry.carrier import inject

        return inject() or None
    except Exception:
        # A handler without its trace is better than none.
        return None


def called_inside(
    carried: dict[str, str] | None, function: Callable[[Any], Any], value: Any
) -> Any:
    """In the other process: what the function returns, called inside of that trace if any.

    Raises what the function raises, and nothing of tracing: what cannot be continued is not.
    """
    leave = None if carried is None else _entered(carried)
    try:
        return function(value)
    finally:
        if leave is not None:
            _try(leave)


def _entered(carried: dict[str, str]) -> Callable[[], object] | None:
    """How to leave that trace again; None when nobody can get into it."""

    def enter() -> Callable[[], object]:
        from localqueue.telemetry.carrier import attach, detach

        return partial(detach, attach(carried))

    return _try(enter)


def _try(function: Callable[[], R]) -> R | None:
    try:
        return function()
    except LocalQueueError:
        # None of tracing: the handler is told to end.
        raise
    except Exception:
        return None
