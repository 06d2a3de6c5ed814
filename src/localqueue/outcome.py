"""How a handler ended (outcome), what the store is told (settlement), and how errors are kept."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

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


Outcome = Succeeded | Failed | Interrupted


@dataclass(frozen=True, slots=True)
class Ack:
    """Done: remove the message."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Release:
    """Deliver it again, ``delay`` seconds from now; with an error this counts as a failure."""

    delay: float = 0.0
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Take it out of delivery and keep it for people to look at."""

    error: dict[str, Any] | None = None


Settlement = Ack | Release | DeadLetter


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
