"""What prometheus-client shows of queues, read back from its text."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from localqueue.errors import ConfigurationError
from localqueue.telemetry.metrics import Metrics
from localqueue.telemetry.names import METRICS
from localqueue.telemetry.prometheus import Collector
from localqueue.testing import ManualClock
from tests.unit.telemetry.phrases import NewQueue


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def samples(registry: CollectorRegistry) -> Iterator[Sample]:
    text = generate_latest(registry).decode()
    for family in text_string_to_metric_families(text):
        yield from family.samples


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    (found,) = [
        sample.value
        for sample in samples(registry)
        if (sample.name, sample.labels) == (name, labels)
    ]
    return found


def test_events_errors_and_depths_are_shown_by_queue(
    new_queue: NewQueue, registry: CollectorRegistry
) -> None:
    queue = new_queue(listeners=())
    Collector([queue], registry=registry)

    queue.put_many(["a", "b", "c", "d"])
    queue.ack(queue.get_message())
    queue.dead_letter(queue.get_message(), OSError("x"))
    queue.get_message()

    def shown(name: str, **labels: str) -> float:
        return value(registry, f"localqueue_{name}", queue="jobs", **labels)

    assert shown("events_total", event="enqueued") == 4
    assert shown("events_total", event="acked") == 1
    assert shown("errors_total", event="dead_lettered", error_type="OSError") == 1
    states = ("ready", "delayed", "inflight", "dead")
    assert [shown("messages", state=state) for state in states] == [1, 0, 1, 1]


def test_durations_are_histograms(
    new_queue: NewQueue, registry: CollectorRegistry, clock: ManualClock
) -> None:
    queue = new_queue(listeners=())
    Collector([queue], registry=registry)
    queue.put("a")
    clock.advance(20)
    message = queue.get_message()

    with queue.telemetry.handling(message):
        assert value(registry, "localqueue_handlers_running", queue="jobs") == 1
    clock.advance(4)
    queue.ack(message)

    def shown(name: str, **labels: str) -> float:
        return value(registry, f"localqueue_{name}", queue="jobs", **labels)

    assert [shown("wait_seconds_bucket", le=le) for le in ("10.0", "30.0", "+Inf")] == [0, 1, 1]
    assert (shown("wait_seconds_sum"), shown("wait_seconds_count")) == (20.0, 1)
    assert [shown("run_seconds_bucket", le=le) for le in ("2.5", "5.0")] == [0, 1]
    assert shown("handler_seconds_count") == 1
    assert shown("handlers_running") == 0


def test_the_age_of_the_oldest_message_is_shown(
    new_queue: NewQueue, registry: CollectorRegistry, clock: ManualClock
) -> None:
    queue = new_queue(listeners=())
    Collector([queue], registry=registry)
    queue.put("a")
    clock.advance(9)

    def age(state: str) -> float:
        name = "localqueue_oldest_message_seconds"
        return value(registry, name, queue="jobs", state=state)

    assert (age("ready"), age("inflight")) == (9.0, 0.0)


def test_every_metric_is_shown_by_its_documented_name(
    new_queue: NewQueue, registry: CollectorRegistry
) -> None:
    queue = new_queue(listeners=())
    Collector([queue], registry=registry)
    queue.put("a")
    queue.release(queue.get_message(), error=OSError("x"))

    text = generate_latest(registry).decode()

    families = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in METRICS:
        family = families.pop(metric.prometheus.removesuffix("_total"))
        labels = {*family.samples[0].labels} - {"le"}
        assert (family.type, labels) == (metric.kind, set(metric.labels))
        assert family.documentation == metric.text
    assert families == {}


def test_a_queues_name_may_hold_what_the_format_has_to_escape(
    new_queue: NewQueue, registry: CollectorRegistry
) -> None:
    queue = new_queue('odd "name" \\ {}', listeners=())
    Collector([queue], registry=registry)
    queue.put("a")

    assert value(registry, "localqueue_events_total", queue=queue.name, event="enqueued") == 1


def test_the_text_can_be_read_before_anything_happened(registry: CollectorRegistry) -> None:
    Collector(registry=registry)

    assert list(samples(registry)) == []


def test_registering_asks_no_store(new_queue: NewQueue, registry: CollectorRegistry) -> None:
    closed = new_queue(listeners=())
    closed.close()

    Collector([closed], registry=registry)


def test_a_closed_collector_counts_and_shows_nothing_and_may_be_replaced(
    new_queue: NewQueue, registry: CollectorRegistry
) -> None:
    queue, other = new_queue(listeners=()), new_queue("other", listeners=())
    collector = Collector([queue], registry=registry)
    collector.add(other)

    collector.close()
    collector.close()

    assert list(samples(registry)) == []
    assert queue.telemetry.listeners == other.telemetry.listeners == ()
    Collector([queue], registry=registry)


def test_metrics_that_count_already_can_be_shown(
    new_queue: NewQueue, registry: CollectorRegistry
) -> None:
    metrics = Metrics()
    new_queue(listeners=[metrics]).put("a")

    Collector(metrics=metrics, registry=registry)

    assert value(registry, "localqueue_events_total", queue="jobs", event="enqueued") == 1


def test_the_usual_registry_is_the_default() -> None:
    collector = Collector()
    try:
        names = {family.name for family in REGISTRY.collect()}
    finally:
        collector.close()

    assert "localqueue_events" in names


def test_a_second_collector_on_one_registry_is_refused_and_listens_to_nothing(
    new_queue: NewQueue, registry: CollectorRegistry
) -> None:
    queue = new_queue(listeners=())
    Collector(registry=registry)

    with pytest.raises(ConfigurationError, match=r"use collector\.add\(queue\)"):
        Collector([queue], registry=registry)

    assert queue.telemetry.listeners == ()


def test_the_error_of_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(ConfigurationError, match=r"prometheus-client .*localqueue\[metrics\]"):
        Collector()
