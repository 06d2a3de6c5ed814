"""What a worker writes into its log when a delivery did not end well."""

from __future__ import annotations

import logging
from typing import Any

from localqueue.message import QueueMessage
from localqueue.outcome import (
    Died,
    Failed,
    Interrupted,
    Outcome,
    Release,
    Settlement,
    Snooze,
    describe_error,
)
from localqueue.workers.source import Source
from localqueue.workers.trace import error_info

log = logging.getLogger("localqueue.workers")

_LONGEST = 200


def log_end(
    message: QueueMessage[Any],
    outcome: Outcome,
    settlement: Settlement,
    counts_as: str,
    source: Source,
    worker_id: str | None,
) -> None:
    """One line for a try that is followed by another; where it failed goes with the last one."""
    by = "" if worker_id is None else f" in worker {worker_id!r}"
    match outcome, settlement:
        case Failed(Snooze()), _:
            return
        case Failed(error), _ if source.removes:
            log.warning(
                "message %s of %r failed%s and is lost, at most once",
                message.id, message.queue, by, exc_info=error_info(error),
            )  # fmt: skip
        case Failed(error), Release(delay):
            log.warning(
                "message %s of %r failed (attempt %d)%s, again in %.1f s: %s",
                message.id, message.queue, message.attempts, by, delay, _in_one_line(error),
            )  # fmt: skip
            log.debug(
                "message %s of %r failed here",
                message.id,
                message.queue,
                exc_info=error_info(error),
            )
        case Failed(error), _:
            log.error(
                "message %s of %r failed (attempt %d)%s and is a dead letter now",
                message.id, message.queue, message.attempts, by, exc_info=error_info(error),
            )  # fmt: skip
        case Died(error), _:
            then = "is a dead letter now" if counts_as == "dead" else "is delivered again"
            log.error(
                "message %s of %r (attempt %d, crash %d)%s %s: %s",
                message.id, message.queue, message.attempts, message.crashes + 1, by,
                "is lost, at most once" if source.removes else then, error,
            )  # fmt: skip
        case Interrupted(), _:
            log_interrupted(message, removes=source.removes)


def log_interrupted(message: QueueMessage[Any], *, removes: bool) -> None:
    log.warning(
        "message %s of %r was not done when the worker stopped, and is %s",
        message.id,
        message.queue,
        "lost" if removes else "given back",
    )


def _in_one_line(error: BaseException) -> str:
    kept = describe_error(error) or {}
    text = " ".join(str(kept["message"]).split())
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"{kept['type']}: {short}" if short else str(kept["type"])
