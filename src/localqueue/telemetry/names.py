"""The metrics that leave the process, by name: one list for every way out."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """A metric: its name in words, what kind it is, its labels, and what it says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str
    unit: str = ""

    @property
    def prometheus(self) -> str:
        """As Prometheus shows it."""
        parts = ["localqueue", *self.name.split()]
        if self.unit:
            parts.append("seconds")
        if self.kind == "counter":
            parts.append("total")
        return "_".join(parts)

    @property
    def opentelemetry(self) -> str:
        """As OpenTelemetry shows it; the unit is told apart from the name."""
        return ".".join(("localqueue", *self.name.split()))


EVENTS = Metric("events", "counter", ("queue", "event"), "events of this process")
ERRORS = Metric(
    "errors",
    "counter",
    ("queue", "event", "error_type"),
    "retried, dead-lettered and crashed messages by type of error",
)
WAIT = Metric(
    "wait", "histogram", ("queue",), "from when a message could be delivered until it was", "s"
)
RUN = Metric("run", "histogram", ("queue",), "from the lease of a message to its settlement", "s")
HANDLER = Metric("handler", "histogram", ("queue",), "from the start of a handler to its end", "s")
RUNNING = Metric("handlers running", "gauge", ("queue",), "handlers that started and did not end")
MESSAGES = Metric("messages", "gauge", ("queue", "state"), "messages in the store")
OLDEST = Metric(
    "oldest message", "gauge", ("queue", "state"), "age of the oldest ready or leased message", "s"
)

METRICS = (EVENTS, ERRORS, WAIT, RUN, HANDLER, RUNNING, MESSAGES, OLDEST)
STATES = ("ready", "delayed", "inflight", "dead")
AGED_STATES = {"ready": "oldest_ready_age_seconds", "inflight": "oldest_inflight_age_seconds"}
"""Whose oldest message has an age, and where the stats have it."""
