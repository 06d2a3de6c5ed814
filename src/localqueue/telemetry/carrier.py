"""The context of OpenTelemetry as text, and back: the span that is current, and its baggage."""

from __future__ import annotations

from contextvars import Token

from opentelemetry import context as contexts
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# Both ends are of this package: what the program has set up for others to read does not matter.
_WORDS = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


def inject() -> dict[str, str]:
    carrier: dict[str, str] = {}
    _WORDS.inject(carrier)
    return carrier


def attach(carrier: dict[str, str]) -> Token[Context]:
    """From here on the calling thread is inside of that trace."""
    return contexts.attach(_WORDS.extract(carrier))


def detach(token: Token[Context]) -> None:
    contexts.detach(token)
