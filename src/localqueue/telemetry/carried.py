"""The trace of a handler on its way to the process that the handler runs in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


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
    """In the other process: what the function returns, called inside of that trace if any."""
    if carried is None:
        return function(value)
    from localqueue.telemetry.carrier import attach, detach

    token = attach(carried)
    try:
        return function(value)
    finally:
        detach(token)
