"""A line of JSON for every event."""

from __future__ import annotations

import json
import logging

import pytest

from localqueue.telemetry.events import Acked, Event, HandlerEnded, Retried
from localqueue.telemetry.log_lines import LogLines
from tests.unit.telemetry.phrases import NewQueue


def test_every_event_is_a_line_and_the_record_has_the_event(
    new_queue: NewQueue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "localqueue.events")
    queue = new_queue(listeners=[LogLines()])

    message = queue.put("a")
    queue.release(queue.get_message(leased_by="w"), error=OSError("x"))

    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line["event"] for line in lines] == ["enqueued", "leased", "retried"]
    assert {line["message_id"] for line in lines} == {message.id}
    assert lines[2]["error_type"] == "OSError"
    assert [vars(record)["event"].as_dict() for record in caplog.records] == lines


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (Acked(queue="q", at=0.0), logging.INFO),
        (Retried(queue="q", at=0.0), logging.WARNING),
        (HandlerEnded(queue="q", at=0.0, took=1.0), logging.INFO),
        (HandlerEnded(queue="q", at=0.0, took=1.0, error_type="OSError"), logging.WARNING),
    ],
)
def test_what_should_not_happen_often_is_a_warning(
    caplog: pytest.LogCaptureFixture, event: Event, level: int
) -> None:
    caplog.set_level(logging.DEBUG, "localqueue.events")

    LogLines()(event)

    assert [record.levelno for record in caplog.records] == [level]


def test_logger_and_level_are_the_users(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mine")

    LogLines(logging.getLogger("mine"), logging.DEBUG)(Acked(queue="q", at=0.0))

    assert [(record.name, record.levelno) for record in caplog.records] == [("mine", 10)]
