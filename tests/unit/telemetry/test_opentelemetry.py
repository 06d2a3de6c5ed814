"""A trace goes through the queue, from the put to the handler, and metrics go with it."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as contexts
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, TraceState

from localqueue.adapters.dispatch import CallbackDispatcher
from localqueue.codec import LARGEST_HEADERS, MOST_HEADERS
from localqueue.errors import ConfigurationError, InvalidMessage
from localqueue.message import QueueMessage
from localqueue.outcome import Snooze
from localqueue.policies import PublishSubscribeRouting, StaticFanoutSubscriptions
from localqueue.telemetry.names import METRICS
from localqueue.telemetry.opentelemetry import instrument
from localqueue.telemetry.spans import Spans, joined
from localqueue.telemetry.tracing import Trace
from localqueue.testing import ManualClock
from tests.unit.telemetry.phrases import NewQueue, Queue

Calls = Callable[[Queue], Any]


class Telemetry:
    """What was traced and measured."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = self.tracer_provider.get_tracer("test")

    def instrument(self, queue: Queue, **options: Any) -> Callable[[], None]:
        return instrument(
            queue, self.tracer_provider, meter_provider=self.meter_provider, **options
        )

    def spans(self) -> list[ReadableSpan]:
        """In the order in which they ended."""
        return list(self._spans.get_finished_spans())

    def only(self, kind: SpanKind) -> ReadableSpan:
        (span,) = [span for span in self.spans() if span.kind is kind]
        return span

    def metrics(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def point(self, name: str, **attributes: str) -> Any:
        """The one data point of this metric with these attributes, of the queue named jobs."""
        wanted = {"queue": "jobs", **attributes}
        (point,) = [
            point
            for point in self.metrics()[name].data.data_points
            if dict(point.attributes) == wanted
        ]
        return point


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.tracer_provider.shutdown()
    telemetry.meter_provider.shutdown()


@pytest.fixture
def traced(new_queue: NewQueue, telemetry: Telemetry) -> Queue:
    queue = new_queue(listeners=())
    telemetry.instrument(queue)
    return queue


# --- traces -------------------------------------------------------------------------------------
def test_the_span_of_a_handler_continues_the_trace_of_the_put(
    traced: Queue, calls: Calls, telemetry: Telemetry
) -> None:
    calls(traced).put("a")
    message = calls(traced).get_message(leased_by="worker-1")

    with traced.telemetry.handling(message):
        pass

    producer, consumer = telemetry.only(SpanKind.PRODUCER), telemetry.only(SpanKind.CONSUMER)
    assert consumer.context.trace_id == producer.context.trace_id
    assert consumer.parent is not None
    assert consumer.parent.span_id == producer.context.span_id
    assert [link.context.span_id for link in consumer.links] == [producer.context.span_id]
    assert producer.parent is None


def test_the_spans_say_what_was_done_to_which_message(traced: Queue, telemetry: Telemetry) -> None:
    traced.put("a")
    message = traced.get_message(leased_by="worker-1")

    with traced.telemetry.handling(message):
        pass

    put, process = telemetry.spans()
    same = {
        "messaging.system": "localqueue",
        "messaging.destination.name": "jobs",
        "messaging.message.id": message.id,
    }
    assert (put.name, process.name) == ("put jobs", "process jobs")
    assert dict(put.attributes or {}) == same | {
        "messaging.operation.name": "put",
        "messaging.operation.type": "send",
    }
    assert dict(process.attributes or {}) == same | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": "worker-1",
        "localqueue.attempt": 1,
    }


def test_a_put_inside_of_a_span_is_its_child(
    traced: Queue, calls: Calls, telemetry: Telemetry
) -> None:
    with telemetry.tracer.start_as_current_span("request") as request:
        message = calls(traced).put("a")

    put = telemetry.only(SpanKind.PRODUCER)
    assert put.parent is not None
    assert put.parent.span_id == request.get_span_context().span_id
    assert message.headers["traceparent"].split("-")[1] == f"{put.context.trace_id:032x}"


def test_what_the_handler_does_belongs_to_its_span(traced: Queue, telemetry: Telemetry) -> None:
    """Also a put of its own, and after it the thread is where it was before."""
    traced.put("a")
    message = traced.get_message()
    before = contexts.get_current()

    with traced.telemetry.handling(message):
        traced.put("b")

    assert contexts.get_current() == before
    first, second, handler = telemetry.spans()
    assert second.parent is not None
    assert second.parent.span_id == handler.context.span_id
    assert second.context.trace_id == first.context.trace_id


def test_a_task_handles_inside_of_the_trace_while_others_run(
    new_queue: NewQueue, telemetry: Telemetry
) -> None:
    queue = new_queue(listeners=())
    telemetry.instrument(queue)
    inside: dict[str, int] = {}

    async def handle(message: QueueMessage[Any], together: asyncio.Barrier) -> None:
        with queue.telemetry.handling(message):
            await together.wait()
            inside[message.id] = trace.get_current_span().get_span_context().trace_id

    async def work() -> list[QueueMessage[Any]]:
        puts = [await queue.aio.put(value) for value in "abc"]
        together = asyncio.Barrier(3)
        messages = await queue.aio.get_messages(3)
        await asyncio.gather(*(handle(message, together) for message in messages))
        return puts

    puts = asyncio.run(work())

    traces = {put.id: int(put.headers["traceparent"].split("-")[1], 16) for put in puts}
    assert inside == traces
    assert len(set(traces.values())) == 3


def test_a_batch_is_one_span_that_all_its_messages_continue(
    traced: Queue, calls: Calls, telemetry: Telemetry
) -> None:
    messages = calls(traced).put_many(["a", "b"])
    calls(traced).put_stream(["c", "d"], chunk=1)

    batch, stream = telemetry.spans()
    assert {m.headers["traceparent"] for m in messages} == {traceparent(batch)}
    assert [m.headers["traceparent"] for m in traced.peek(4)[2:]] == [traceparent(stream)] * 2


def test_an_async_stream_is_traced_too(traced: Queue, telemetry: Telemetry) -> None:
    async def items() -> Any:
        yield "a"

    assert asyncio.run(traced.aio.put_stream(items())) == 1

    (message,) = traced.peek()
    assert message.headers["traceparent"] == traceparent(telemetry.only(SpanKind.PRODUCER))


def traceparent(span: ReadableSpan) -> str:
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_a_put_that_fails_is_a_failed_span(
    traced: Queue, calls: Calls, telemetry: Telemetry
) -> None:
    with pytest.raises(InvalidMessage):
        calls(traced).put(object())

    span = telemetry.only(SpanKind.PRODUCER)
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "InvalidMessage"
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_handler_that_fails_is_a_failed_span(traced: Queue, telemetry: Telemetry) -> None:
    message = traced.put("a")

    with pytest.raises(OSError, match="disk"), traced.telemetry.handling(message):
        raise OSError("disk")

    span = telemetry.only(SpanKind.CONSUMER)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "disk")
    assert [event.name for event in span.events] == ["exception"]


def test_a_handler_that_snoozes_has_not_failed(traced: Queue, telemetry: Telemetry) -> None:
    message = traced.put("a")

    with pytest.raises(Snooze), traced.telemetry.handling(message):
        raise Snooze(5)

    assert telemetry.only(SpanKind.CONSUMER).status.status_code is StatusCode.UNSET


def test_a_put_that_found_its_key_taken_says_so(traced: Queue, telemetry: Telemetry) -> None:
    traced.put("a", dedupe_key="k")
    again = traced.put("a", dedupe_key="k")

    first, second = telemetry.spans()
    assert "localqueue.fate" not in (first.attributes or {})
    assert (second.attributes or {})["localqueue.fate"] == "duplicate"
    assert again.headers["traceparent"] == traceparent(first)


def test_a_message_without_a_trace_begins_one_or_joins_that_of_its_worker(
    new_queue: NewQueue, telemetry: Telemetry
) -> None:
    message, queue = new_queue().put("a"), new_queue(listeners=())
    telemetry.instrument(queue)

    with queue.telemetry.handling(message):
        pass
    with (
        telemetry.tracer.start_as_current_span("worker") as worker,
        queue.telemetry.handling(message),
    ):
        pass

    alone, joining, _ = telemetry.spans()
    assert alone.parent is None
    assert joining.parent is not None
    assert joining.parent.span_id == worker.get_span_context().span_id
    assert not alone.links
    assert not joining.links


def test_dispatching_what_is_pending_runs_inside_of_the_trace(
    new_queue: NewQueue, telemetry: Telemetry
) -> None:
    producer = new_queue(listeners=())
    telemetry.instrument(producer)
    producer.put("a")
    seen: list[int] = []
    queue = new_queue(
        listeners=(),
        dispatch_policy=CallbackDispatcher(
            [lambda _: seen.append(trace.get_current_span().get_span_context().trace_id)]
        ),
    )
    telemetry.instrument(queue)

    queue.dispatch_pending()

    assert seen == [telemetry.only(SpanKind.PRODUCER).context.trace_id]


def test_a_subscriber_continues_the_trace_of_the_publication(
    new_queue: NewQueue, telemetry: Telemetry
) -> None:
    topic = new_queue(
        "news",
        listeners=(),
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=StaticFanoutSubscriptions(["a"]),
    )
    telemetry.instrument(topic)
    topic.put("hello")
    reader = topic.subscriber_queue("a")

    with reader.telemetry.handling(reader.get_message()):
        pass

    publication, handler = telemetry.spans()
    assert handler.name == "process news.a"
    assert handler.context.trace_id == publication.context.trace_id


# --- headers ------------------------------------------------------------------------------------
def test_the_users_headers_are_kept_beside_the_trace(traced: Queue, calls: Calls) -> None:
    message = calls(traced).put("a", headers={"tenant": "x"})

    stored = traced.get_message()
    assert stored.headers == message.headers
    assert set(stored.headers) == {"tenant", "traceparent"}
    assert stored.headers["tenant"] == "x"


def test_a_trace_that_the_user_passes_on_by_hand_is_left_alone(
    traced: Queue, telemetry: Telemetry
) -> None:
    mine = {"traceparent": f"00-{7:032x}-{9:016x}-01"}

    message = traced.put("a", headers=mine)
    with traced.telemetry.handling(message):
        pass

    assert message.headers == mine
    assert telemetry.only(SpanKind.CONSUMER).context.trace_id == 7


def test_a_trace_that_does_not_fit_is_left_out_and_the_message_is_put(traced: Queue) -> None:
    many = {f"header-{number}": "x" for number in range(MOST_HEADERS)}
    large = {"large": "x" * (LARGEST_HEADERS - 20)}

    assert traced.put("a", headers=many).headers == many
    assert traced.put("a", headers=large).headers == large


CARRIER = {"traceparent": "p" * 55, "tracestate": "s" * 500}


@pytest.mark.parametrize(
    ("own", "together"),
    [
        (None, CARRIER),
        ({"a": "b"}, {"a": "b"} | CARRIER),
        (
            {"large": "x" * (LARGEST_HEADERS - 200)},
            {"large": "x" * (LARGEST_HEADERS - 200), "traceparent": "p" * 55},
        ),
        ({"tracestate": "mine"}, {"tracestate": "mine"}),
        ({"": "refused by the put"}, {"": "refused by the put"}),
        ("no mapping", "no mapping"),
    ],
)
def test_headers_of_a_trace_are_added_as_far_as_there_is_room(
    own: Any, together: Mapping[str, str]
) -> None:
    assert joined(own, CARRIER, {"traceparent", "tracestate"}) == together


def test_headers_that_no_message_may_have_are_refused_as_ever(traced: Queue) -> None:
    with pytest.raises(InvalidMessage, match="name cannot be empty"):
        traced.put("a", headers={"": "x"})


def test_the_state_of_a_trace_travels_too(traced: Queue, telemetry: Telemetry) -> None:
    parent = trace.NonRecordingSpan(
        trace.SpanContext(7, 9, True, trace.TraceFlags(1), TraceState([("vendor", "value")]))
    )
    with trace.use_span(parent):
        message = traced.put("a")

    with traced.telemetry.handling(message):
        state = trace.get_current_span().get_span_context().trace_state

    assert message.headers["tracestate"] == "vendor=value"
    assert state.get("vendor") == "value"


def test_another_propagator_carries_what_it_wants(
    new_queue: NewQueue, telemetry: Telemetry
) -> None:
    queue = new_queue(listeners=())
    telemetry.instrument(queue, propagator=W3CBaggagePropagator())
    token = contexts.attach(baggage.set_baggage("user", "17"))
    try:
        message = queue.put("a")
    finally:
        contexts.detach(token)

    with queue.telemetry.handling(message):
        assert baggage.get_baggage("user") == "17"
    assert message.headers == {"baggage": "user=17"}


# --- metrics ------------------------------------------------------------------------------------
def test_events_durations_and_depths_are_measured(
    traced: Queue, telemetry: Telemetry, clock: ManualClock
) -> None:
    traced.put_many(["a", "b"])
    clock.advance(2)
    message = traced.get_message()
    with traced.telemetry.handling(message):
        assert telemetry.point("localqueue.handlers.running").value == 1
    clock.advance(1)
    traced.release(message, error=OSError("x"))

    assert telemetry.point("localqueue.events", event="enqueued").value == 2
    errors = telemetry.point("localqueue.errors", event="retried", error_type="OSError")
    assert errors.value == 1
    wait, run = telemetry.point("localqueue.wait"), telemetry.point("localqueue.run")
    assert (wait.count, wait.sum, run.count, run.sum) == (1, 2.0, 1, 1.0)
    assert 2.5 in wait.explicit_bounds
    assert telemetry.point("localqueue.handler").count == 1
    assert telemetry.point("localqueue.handlers.running").value == 0
    assert telemetry.point("localqueue.messages", state="ready").value == 2
    assert telemetry.point("localqueue.oldest.message", state="ready").value == 3.0


def test_every_metric_is_measured_by_its_documented_name(
    traced: Queue, telemetry: Telemetry
) -> None:
    traced.put("a")
    message = traced.get_message()
    with traced.telemetry.handling(message):
        pass
    traced.release(message, error=OSError("x"))

    measured = telemetry.metrics()

    assert set(measured) == {metric.opentelemetry for metric in METRICS}
    for metric in METRICS:
        found = measured[metric.opentelemetry]
        assert (found.unit, found.description) == (metric.unit, metric.text)
        assert set(found.data.data_points[0].attributes) == set(metric.labels)


def test_several_queues_share_the_instruments_of_a_provider(
    traced: Queue, new_queue: NewQueue, telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    other = new_queue("other", listeners=())
    telemetry.instrument(other)

    traced.put("a")
    other.put("b")

    measured = telemetry.metrics()
    for name in ("localqueue.events", "localqueue.messages"):
        points = measured[name].data.data_points
        assert {point.attributes["queue"] for point in points} == {"jobs", "other"}
    assert [point.value for point in measured["localqueue.events"].data.data_points] == [1, 1]
    assert caplog.records == []


def test_a_provider_that_nobody_has_any_more_is_forgotten(new_queue: NewQueue) -> None:
    from localqueue.telemetry.meters import _made

    gc.collect()
    before = len(_made)
    provider = MeterProvider(shutdown_on_exit=False)
    instrument(new_queue(), meter_provider=provider)()
    assert len(_made) == before + 1

    provider.shutdown()
    del provider
    gc.collect()

    assert len(_made) == before


# --- beginning and ending -------------------------------------------------------------------------
def test_stopping_leaves_the_queue_as_it_was(
    new_queue: NewQueue, calls: Calls, telemetry: Telemetry
) -> None:
    queue = new_queue(listeners=())
    stop = telemetry.instrument(queue)
    calls(queue).put("a")

    stop()
    stop()
    message = calls(queue).put("b")

    assert message.headers == {}
    assert len(telemetry.spans()) == 1
    assert not queue.telemetry.active
    assert telemetry.point("localqueue.events", event="enqueued").value == 1


def test_a_twin_that_was_there_before_is_traced_too(
    new_queue: NewQueue, telemetry: Telemetry
) -> None:
    queue = new_queue(listeners=())
    twin = queue.aio
    telemetry.instrument(queue)

    message = asyncio.run(twin.put("a"))

    assert "traceparent" in message.headers


def test_a_queue_is_traced_once(traced: Queue, telemetry: Telemetry) -> None:
    with pytest.raises(ConfigurationError, match="'jobs' is traced already"):
        telemetry.instrument(traced)


def test_without_providers_the_global_ones_are_used_and_cost_no_header(
    new_queue: NewQueue,
) -> None:
    queue = new_queue(listeners=())
    stop = instrument(queue)
    try:
        message = queue.put("a")
        with queue.telemetry.handling(message):
            pass
    finally:
        stop()

    assert message.headers == {}


class Broken:
    """A tracing that fails wherever it can."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._spans = Spans()

    def begin_put(self, queue: str, headers: Mapping[str, str] | None) -> Trace:
        if self._where == "begin":
            raise RuntimeError("no tracer")
        return BrokenTrace()

    def begin_handling(self, message: QueueMessage[Any], worker: str | None) -> Trace:
        return self.begin_put(message.queue, None)


class BrokenTrace:
    headers: Mapping[str, str] | None = None

    def end(self, message: QueueMessage[Any] | None, error: BaseException | None) -> None:
        raise RuntimeError("no exporter")


@pytest.mark.parametrize("where", ["begin", "end"])
def test_a_tracing_that_fails_is_logged_once_and_the_queue_goes_on(
    queue: Queue, calls: Calls, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue.telemetry.trace(Broken(where))

    message = calls(queue).put("a")
    calls(queue).put_many(["b"])
    with queue.telemetry.handling(message):
        pass

    assert queue.qsize() == 2
    assert len(caplog.records) == 1


def test_the_error_of_a_missing_library_names_the_extra(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    with pytest.raises(ConfigurationError, match=r"opentelemetry-api .*localqueue\[metrics\]"):
        instrument(queue)

    assert queue.telemetry.tracing is None
