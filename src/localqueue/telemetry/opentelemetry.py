"""OpenTelemetry (extra ``metrics``): traces that cross the queue, and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from localqueue.telemetry.emitter import Emitter
from localqueue.telemetry.extra import import_extra
from localqueue.telemetry.measured import MeasuredQueue

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider


class TracedQueue(MeasuredQueue, Protocol):
    """What instrumentation needs of a queue."""

    @property
    def telemetry(self) -> Emitter: ...


def instrument(
    queue: TracedQueue,
    tracer_provider: TracerProvider | None = None,
    *,
    meter_provider: MeterProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> Callable[[], None]:
    """Trace and measure what this queue object does from now on; returns how to stop that.

    A put is a producer span, and its context travels in the message's headers, as W3C
    ``traceparent`` and ``tracestate`` unless another propagator is given. A worker's handler runs
    inside of a consumer span that continues the trace. Without providers the global ones are used.
    ConfigurationError when opentelemetry-api is not installed, or the queue is traced already.
    """
    import_extra("opentelemetry.trace", "opentelemetry-api")
    from localqueue.telemetry.meters import meters_of
    from localqueue.telemetry.spans import Spans

    stop_tracing = queue.telemetry.trace(Spans(tracer_provider, propagator))
    stop_measuring = meters_of(meter_provider).add(queue)

    def stop() -> None:
        stop_tracing()
        stop_measuring()

    return stop
