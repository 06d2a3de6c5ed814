"""Events, metrics and traces of what queue objects do.

``queue.listen(listener)`` calls a function with every event. ``Metrics`` and ``LogLines`` are
listeners; ``localqueue.telemetry.prometheus`` and ``localqueue.telemetry.opentelemetry`` hand on
what they see (extra ``metrics``). Nothing of this is loaded, or costs anything, before somebody
listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localqueue.telemetry.emitter import Emitter
    from localqueue.telemetry.events import (
        EVENTS,
        Acked,
        Cancelled,
        Crashed,
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
    from localqueue.telemetry.log_lines import LogLines
    from localqueue.telemetry.metrics import HistogramSnapshot, Metrics, QueueMetrics
    from localqueue.telemetry.subscription import Listener
    from localqueue.telemetry.tracing import Trace, Tracing

__all__ = [
    "EVENTS",
    "Acked",
    "Cancelled",
    "Crashed",
    "DeadLettered",
    "Dispatched",
    "Dropped",
    "Duplicated",
    "Emitter",
    "Enqueued",
    "Event",
    "HandlerEnded",
    "HandlerStarted",
    "HistogramSnapshot",
    "LeaseExpired",
    "Leased",
    "Listener",
    "LogLines",
    "Metrics",
    "Notified",
    "Purged",
    "QueueMetrics",
    "Released",
    "Requeued",
    "Retried",
    "StaleReceipt",
    "Trace",
    "Tracing",
]

_ELSEWHERE = {
    "Emitter": "emitter",
    "HistogramSnapshot": "metrics",
    "Listener": "subscription",
    "LogLines": "log_lines",
    "Metrics": "metrics",
    "QueueMetrics": "metrics",
    "Trace": "tracing",
    "Tracing": "tracing",
}

if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module = import_module(f"{__name__}.{_ELSEWHERE.get(name, 'events')}")
        return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
