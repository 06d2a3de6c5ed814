"""A handler of any kind of worker runs inside of the consumer span of its message."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry import context as contexts
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from localqueue.queue import PersistentQueue
from localqueue.telemetry.opentelemetry import instrument
from localqueue.workers.worker import Kind, Worker
from tests.unit.telemetry.traced_handlers import write_down, write_down_async
from tests.unit.telemetry.untraced_handler import write_down_modules

KINDS: list[tuple[Kind, Callable[[Any], Any]]] = [
    ("thread", write_down),
    ("asyncio", write_down_async),
    ("process", write_down),
]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store_path=tmp_path / "queue.sqlite3") as queue:
        yield queue


def traced(queue: PersistentQueue[Any]) -> InMemorySpanExporter:
    spans, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    words = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
    meters = MeterProvider(shutdown_on_exit=False)
    instrument(queue, provider, meter_provider=meters, propagator=words)
    return spans


def put_for_tenant(queue: PersistentQueue[Any], file: Path) -> None:
    token = contexts.attach(baggage.set_baggage("tenant", "ada"))
    try:
        queue.put_many([{"file": str(file)}] * 3)
    finally:
        contexts.detach(token)


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize(("kind", "handler"), KINDS)
def test_the_current_span_of_a_handler_is_the_consumer_span_of_its_message(
    queue: PersistentQueue[Any],
    tmp_path: Path,
    kind: Kind,
    handler: Callable[[Any], Any],
    concurrency: int,
) -> None:
    spans = traced(queue)
    put_for_tenant(queue, tmp_path / "seen")

    Worker(queue, handler, kind=kind, concurrency=concurrency).run(until_empty=True)

    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    ended = [s.context for s in spans.get_finished_spans() if s.kind is SpanKind.CONSUMER]
    assert len(ended) == 3
    assert sorted((one["trace"], one["span"]) for one in seen) == sorted(
        (span.trace_id, span.span_id) for span in ended if span is not None
    )
    assert {one["tenant"] for one in seen} == {"ada"}
    assert all((one["pid"] == os.getpid()) == (kind != "process") for one in seen)


def test_nothing_is_loaded_where_nothing_is_traced(
    queue: PersistentQueue[Any], tmp_path: Path
) -> None:
    queue.put(str(tmp_path / "loaded"))

    Worker(queue, write_down_modules, kind="process").run(until_empty=True)

    assert json.loads((tmp_path / "loaded").read_text()) == []
