"""How a handler ended (outcome), what the store is told (settlement), and how errors are kept.

A handler that neither returns nor fails raises Retry, Reject or Snooze: words to its worker.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from dataclasses import dataclass
from typing import Any

from localqueue.checks import check_seconds

LONGEST_ERROR_TEXT = 500
"""In the journal."""
LONGEST_KEPT_TEXT = 4_000
"""With the message, whose history is read with every delivery."""
_DETAILS = ("command", "exit_code", "stdout", "stderr")
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker was asked to stop before the handler ended; nothing is charged."""


@dataclass(frozen=True, slots=True)
class Died:
    """What ran the handler died with it: a crash, charged to the message."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Somebody cancelled the message while the handler ran, and the handler gave up."""


Outcome = Succeeded | Failed | Interrupted | Died | Abandoned


class Retry(Exception):
    """Raised by a handler: deliver the message again, and count a failure.

    After ``after`` seconds, or when the worker's backoff says so. The budget is that of any other
    failure. ``raise Retry(after=60) from error`` keeps that error with the message.
    """

    def __init__(self, after: float | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked for another try")
        self.after = None if after is None else check_seconds("after", after)


class Reject(Exception):
    """Raised by a handler: this message can never succeed; a dead letter now."""

    def __init__(self, reason: str = "the handler rejected the message") -> None:
        super().__init__(reason)


class Snooze(Exception):
    """Raised by a handler: not now. Deliver it again in ``seconds``, and charge nothing."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not now, but in {seconds} seconds")
        self.seconds = check_seconds("seconds", seconds)


@dataclass(frozen=True, slots=True)
class Ack:
    """Done: remove the message."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Release:
    """Deliver it again, ``delay`` seconds from now; with an error this counts as a failure."""

    delay: float = 0.0
    error: dict[str, Any] | None = None
    failures: int = 1
    """How many an error counts for: a worker may have tried several times under one lease."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Take it out of delivery and keep it for people to look at."""

    error: dict[str, Any] | None = None
    failures: int = 1


@dataclass(frozen=True, slots=True)
class Crashed:
    """What ran the handler died. Deliver it again, unless that happened too often.

    The store counts it as a crash and not as a failure; at the queue's crash limit the message is
    a dead letter. ``error`` says how it died, as far as somebody saw it.
    """

    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody cancelled it while it ran: remove it, as cancelled and not as done."""


Settlement = Ack | Release | DeadLetter | Crashed | Cancel


def describe_error(error: BaseException | str | None) -> dict[str, Any] | None:
    """What is kept of an error: type, module and message, and what a failed command printed."""
    if error is None:
        return None
    if isinstance(error, str):
        return {"type": None, "module": None, "message": _text(error)}
    kind = type(error)
    kept: dict[str, Any] = {
        "type": kind.__name__,
        "module": kind.__module__,
        "message": _text(_message_of(error)),
    }
    for name in _DETAILS:
        with contextlib.suppress(Exception):
            # Whatever the error's own class answers here: the rest of it is kept.
            value = getattr(error, name, None)
            if value is not None:
                kept[name] = value if isinstance(value, int) else _text(str(value))
    return kept


def fingerprint(error: dict[str, Any]) -> str:
    """Equal for errors that differ only in numbers and addresses, so that they can be counted."""
    text = _VARYING.sub("#", f"{error.get('type')}:{error.get('message')}")
    return f"{zlib.crc32(text.encode('utf-8', 'replace')):08x}"


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<message unavailable: {type(broken).__name__} in __str__>"


def _text(text: str) -> str:
    if len(text) > LONGEST_KEPT_TEXT:
        text = f"{text[:LONGEST_KEPT_TEXT]}… ({len(text):,} characters)"
    return text.encode("utf-8", "replace").decode()
