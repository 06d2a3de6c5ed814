"""Metrics for prometheus-client (extra ``metrics``): counted here, read when it scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from localqueue.errors import ConfigurationError
from localqueue.telemetry.extra import import_extra
from localqueue.telemetry.measured import MeasuredQueue
from localqueue.telemetry.metrics import HistogramSnapshot, Metrics, QueueMetrics
from localqueue.telemetry.names import (
    AGED_STATES,
    ERRORS,
    EVENTS,
    HANDLER,
    MESSAGES,
    METRICS,
    OLDEST,
    RUN,
    RUNNING,
    STATES,
    WAIT,
    Metric,
)

if TYPE_CHECKING:
    import prometheus_client
    from prometheus_client import metrics_core


class Collector:
    """A collector of prometheus-client, registered from its making until ``close``.

    Listens to the queues it is given. What they hold is asked of their stores at each scrape.
    ConfigurationError when prometheus-client is not installed, and for a second one on a registry.
    """

    def __init__(
        self,
        queues: Iterable[MeasuredQueue] = (),
        *,
        metrics: Metrics | None = None,
        registry: prometheus_client.CollectorRegistry | None = None,
    ) -> None:
        client: Any = import_extra("prometheus_client", "prometheus-client")
        self._core: Any = import_extra("prometheus_client.core", "prometheus-client")
        self.metrics = Metrics() if metrics is None else metrics
        """What counts; one that counts already may be given."""
        self._registry = client.REGISTRY if registry is None else registry
        try:
            self._registry.register(self)
        except ValueError as error:
            raise ConfigurationError(
                "this registry has a Collector already; use collector.add(queue) of that one, or"
                " another registry="
            ) from error
        self._stops = [self.metrics.add(queue) for queue in queues]
        self._closed = False

    def add(self, queue: MeasuredQueue) -> Callable[[], None]:
        """Show this queue too; returns how to stop that."""
        stop = self.metrics.add(queue)
        self._stops.append(stop)
        return stop

    def close(self) -> None:
        """Show and count nothing any more. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._registry.unregister(self)
        for stop in self._stops:
            stop()

    def describe(self) -> list[metrics_core.Metric]:
        """The names alone, so that registering asks no store."""
        return [self._family(metric) for metric in METRICS]

    def collect(self) -> list[metrics_core.Metric]:
        families = {metric: self._family(metric) for metric in METRICS}
        for queue, seen in self.metrics.snapshot().items():
            _add_events(families, queue, seen)
            _add_stats(families, queue, seen)
        return list(families.values())

    def _family(self, metric: Metric) -> Any:
        kinds = {
            "counter": self._core.CounterMetricFamily,
            "gauge": self._core.GaugeMetricFamily,
            "histogram": self._core.HistogramMetricFamily,
        }
        return kinds[metric.kind](metric.prometheus, metric.text, labels=metric.labels)


def _add_events(families: dict[Metric, Any], queue: str, seen: QueueMetrics) -> None:
    for kind, count in seen.events.items():
        families[EVENTS].add_metric((queue, kind), count)
    for (kind, error_type), count in seen.errors.items():
        families[ERRORS].add_metric((queue, kind, error_type), count)
    for metric, histogram in ((WAIT, seen.wait), (RUN, seen.run), (HANDLER, seen.handler)):
        families[metric].add_metric((queue,), _buckets(histogram), histogram.sum)
    families[RUNNING].add_metric((queue,), seen.running)


def _add_stats(families: dict[Metric, Any], queue: str, seen: QueueMetrics) -> None:
    stats = seen.stats
    if stats is None:
        return
    for state in STATES:
        families[MESSAGES].add_metric((queue, state), getattr(stats, state))
    for state, field in AGED_STATES.items():
        families[OLDEST].add_metric((queue, state), getattr(stats, field) or 0.0)


def _buckets(histogram: HistogramSnapshot) -> list[tuple[str, int]]:
    return [
        ("+Inf" if bound == float("inf") else str(bound), count)
        for bound, count in histogram.buckets
    ]
