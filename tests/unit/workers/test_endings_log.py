"""The log says what failed: in a line while there is another try, with the traceback at the end."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from localqueue.policies import AtMostOnceDelivery
from localqueue.workers.worker import Worker
from tests.unit.workers.acts import act, act_async
from tests.unit.workers.phrases import Stage

LOGGER = "localqueue.workers"


def run(stage: Stage, handler: Any, kind: Any, **options: Any) -> str:
    """The id of a message that failed twice."""
    queue = stage.queue(**options)
    message = queue.put(stage.act("raise", text="boom\nand more"))
    worker = Worker(queue, handler, kind=kind, max_tries=2, backoff=0.0, worker_id="w1")
    worker.run(until_empty=True)
    return message.id


@pytest.mark.parametrize(
    ("kind", "handler"), [("thread", act), ("asyncio", act_async), ("process", act)]
)
def test_only_the_last_try_has_its_traceback_and_nothing_is_said_twice(
    stage: Stage, kind: str, handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    number = run(stage, handler, kind)

    first, last = caplog.records
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
    assert first.getMessage() == (
        f"message {number} of 'jobs' failed (attempt 1) in worker 'w1', again in 0.0 s:"
        " ValueError: boom and more"
    )
    assert first.exc_info is None
    text = logging.Formatter().format(last)
    assert text.startswith(
        f"message {number} of 'jobs' failed (attempt 2) in worker 'w1' and is a dead letter now\n"
    )
    assert (text.count("ValueError: boom"), text.count("in _finish")) == (1, 1)
    assert "localqueue/workers" not in text


def test_the_traceback_of_every_try_is_there_for_those_who_debug(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)

    run(stage, act, "thread")

    (debug,) = [record for record in caplog.records if record.levelname == "DEBUG"]
    text = logging.Formatter().format(debug)
    assert text.count("in _finish") == 1
    assert "localqueue/workers" not in text


def test_what_is_lost_at_most_once_has_its_traceback(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    run(stage, act, "thread", delivery_policy=AtMostOnceDelivery())

    (record,) = caplog.records
    assert "is lost, at most once" in record.getMessage()
    assert record.exc_info is not None


def test_a_long_error_is_cut_in_a_line(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    queue = stage.queue()
    queue.put(stage.act("raise", text="x" * 10_000))

    Worker(queue, act, max_tries=2, backoff=0.0).run(until_empty=True)

    assert len(caplog.records[0].getMessage()) < 400
