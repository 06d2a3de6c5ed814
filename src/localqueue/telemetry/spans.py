"""A span around each put and each handler, and the headers that connect them."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from localqueue.codec import encode_headers
from localqueue.errors import InvalidMessage
from localqueue.message import QueueMessage
from localqueue.outcome import Snooze

SCOPE = "localqueue"


class Spans:
    """Begins producer and consumer spans. The attributes are OpenTelemetry's for messaging."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._propagator = propagator or TraceContextTextMapPropagator()

    def begin_put(self, queue: str, headers: Mapping[str, str] | None) -> OpenSpan:
        span = self._tracer.start_span(
            f"put {queue}", kind=SpanKind.PRODUCER, attributes=_attributes(queue, "put", "send")
        )
        within = trace.set_span_in_context(span)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=within)
        return OpenSpan(span, within, joined(headers, carrier, self._propagator.fields))

    def begin_handling(self, message: QueueMessage[Any], worker: str | None) -> OpenSpan:
        ambient = contexts.get_current()
        producer = self._propagator.extract(message.headers, context=ambient)
        put = trace.get_current_span(producer).get_span_context()
        found = put.is_valid and put != trace.get_current_span(ambient).get_span_context()
        attributes = _attributes(message.queue, "process", "process")
        attributes["messaging.message.id"] = message.id
        attributes["localqueue.attempt"] = message.attempts
        if worker is not None:
            attributes["messaging.client.id"] = worker
        span = self._tracer.start_span(
            f"process {message.queue}",
            context=producer,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(put)] if found else [],
        )
        return OpenSpan(span, trace.set_span_in_context(span, producer), None)


class OpenSpan:
    """A span that is the current one until it ends, in the thread or task where it began."""

    __slots__ = ("_span", "_token", "headers")

    def __init__(self, span: Span, within: Context, headers: Mapping[str, str] | None) -> None:
        self.headers = headers
        self._span = span
        self._token: Token[Context] = contexts.attach(within)

    def end(self, message: QueueMessage[Any] | None, error: BaseException | None) -> None:
        contexts.detach(self._token)
        span = self._span
        if message is not None:
            span.set_attribute("messaging.message.id", message.id)
            if message.duplicate or message.dropped:
                fate = "duplicate" if message.duplicate else "dropped"
                span.set_attribute("localqueue.fate", fate)
        # A handler that snoozes has not failed.
        if error is not None and not isinstance(error, Snooze):
            span.record_exception(error)
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()


def joined(
    own: Mapping[str, str] | None, carrier: Mapping[str, str], fields: set[str]
) -> Mapping[str, str] | None:
    """The user's headers, and those of the trace as far as a message has room for them.

    Whoever passes a trace on by hand is left alone. What a put would refuse stays as it is: the put
    says so.
    """
    if own is not None and (not isinstance(own, Mapping) or fields & set(own)):
        return own
    needed = {name: carrier[name] for name in carrier if name == "traceparent"}
    for added in (carrier, needed):
        together = {**added, **(own or {})}
        try:
            encode_headers(together)
        except InvalidMessage:
            continue
        return together or own
    return own


def _attributes(queue: str, operation: str, kind: str) -> dict[str, AttributeValue]:
    return {
        "messaging.system": SCOPE,
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
