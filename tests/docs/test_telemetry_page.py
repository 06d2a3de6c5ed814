"""The tables of events and metrics are those of the code."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

from localqueue import telemetry
from localqueue.telemetry.events import EVENTS, Event
from localqueue.telemetry.names import METRICS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")


def table(heading: str) -> list[str]:
    """The rows of the first table below a heading, without its own head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def names(fields: tuple[str, ...]) -> str:
    return ", ".join(f"`{field}`" for field in fields)


def event_row(event: type[Event]) -> str:
    shared = {field.name for field in dataclasses.fields(Event)}
    own = tuple(field.name for field in dataclasses.fields(event) if field.name not in shared)
    text = inspect.cleandoc(event.__doc__ or "").replace("``", "`").replace("\n", " ")
    return f"| `{event.__name__}` | `{event.kind}` | {names(own)} | {text} |"


def test_the_table_of_events_is_that_of_the_classes() -> None:
    assert table("Events") == [event_row(event) for event in EVENTS]


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    assert table("Metrics") == [
        f"| `{metric.prometheus}` | `{metric.opentelemetry}` | {metric.kind} |"
        f" {names(metric.labels)} | {metric.text} |"
        for metric in METRICS
    ]


def test_every_field_of_all_events_and_every_public_name_is_on_the_page() -> None:
    shared = {field.name for field in dataclasses.fields(Event)}
    told = set(re.findall(r"`(\w+)", PAGE))

    assert sorted(shared - told) == []
    assert sorted(set(telemetry.__all__) - told - {"EVENTS", "Trace"}) == []


def test_every_public_name_can_be_imported_and_no_other() -> None:
    assert [name for name in telemetry.__all__ if not hasattr(telemetry, name)] == []
    assert not hasattr(telemetry, "NoSuchThing")
    assert set(telemetry.__all__) <= set(dir(telemetry))
    assert telemetry.__all__ == sorted(
        telemetry.__all__, key=lambda name: (not name.isupper(), name)
    )
