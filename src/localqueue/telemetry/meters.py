"""The metrics of this process as OpenTelemetry's instruments, one set for all queues."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

from opentelemetry.metrics import (
    CallbackOptions,
    Histogram,
    Meter,
    MeterProvider,
    Observation,
    get_meter_provider,
)

from localqueue.telemetry.events import Event, HandlerEnded, HandlerStarted
from localqueue.telemetry.measured import MeasuredQueue, MeasuredQueues
from localqueue.telemetry.metrics import BOUNDS, duration_of, error_of
from localqueue.telemetry.names import (
    AGED_STATES,
    ERRORS,
    EVENTS,
    HANDLER,
    MESSAGES,
    OLDEST,
    RUN,
    RUNNING,
    STATES,
    WAIT,
    Metric,
)


class Meters:
    """A listener that writes to the instruments of one provider."""

    def __init__(self, meter: Meter) -> None:
        self._queues = MeasuredQueues()
        name, text = _named(EVENTS)
        self._events = meter.create_counter(name, description=text)
        name, text = _named(ERRORS)
        self._errors = meter.create_counter(name, description=text)
        name, text = _named(RUNNING)
        self._running = meter.create_up_down_counter(name, description=text)
        self._durations = {metric: _histogram(meter, metric) for metric in (WAIT, RUN, HANDLER)}
        name, text = _named(MESSAGES)
        meter.create_observable_gauge(name, [self._messages], description=text)
        name, text = _named(OLDEST)
        meter.create_observable_gauge(name, [self._oldest], unit=OLDEST.unit, description=text)

    def add(self, queue: MeasuredQueue) -> Callable[[], None]:
        return self._queues.add(queue, self)

    def __call__(self, event: Event) -> None:
        queue = {"queue": event.queue}
        self._events.add(1, queue | {"event": event.kind})
        if (duration := duration_of(event)) is not None:
            metric, seconds = duration
            self._durations[metric].record(seconds, queue)
        if (error_type := error_of(event)) is not None:
            self._errors.add(1, queue | {"event": event.kind, "error_type": error_type})
        if isinstance(event, HandlerStarted):
            self._running.add(1, queue)
        elif isinstance(event, HandlerEnded):
            self._running.add(-1, queue)

    def _messages(self, _: CallbackOptions) -> Iterator[Observation]:
        for queue, stats in self._queues.stats().items():
            for state in STATES:
                yield Observation(getattr(stats, state), {"queue": queue, "state": state})

    def _oldest(self, _: CallbackOptions) -> Iterator[Observation]:
        for queue, stats in self._queues.stats().items():
            for state, field in AGED_STATES.items():
                age = getattr(stats, field)
                yield Observation(age or 0.0, {"queue": queue, "state": state})


def meters_of(provider: MeterProvider | None) -> Meters:
    """Those of this provider, or of the global one; a provider makes an instrument only once."""
    chosen = get_meter_provider() if provider is None else provider
    found = _made.get(chosen)
    if found is None:
        found = _made[chosen] = Meters(chosen.get_meter("localqueue"))
    return found


_made: weakref.WeakKeyDictionary[MeterProvider, Meters] = weakref.WeakKeyDictionary()


def _named(metric: Metric) -> tuple[str, str]:
    return metric.opentelemetry, metric.text


def _histogram(meter: Meter, metric: Metric) -> Histogram:
    return meter.create_histogram(
        metric.opentelemetry,
        unit=metric.unit,
        description=metric.text,
        explicit_bucket_boundaries_advisory=BOUNDS,
    )
