"""What callers may pass: names, numbers and keys. A refusal says which argument and why."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from typing import Any

from localqueue.errors import InvalidArgument, InvalidMessage, InvalidMessageType, WrongType

LONGEST_NAME = 200
LONGEST_KEY = 1_000
HIGHEST_PRIORITY = 2**31 - 1
LONGEST_DELAY = 10 * 366 * 86_400.0
LARGEST_COUNT = 2**53


def check_queue_name(name: object) -> str:
    """Refuse what cannot name a queue: empty, too long, with ``:`` or with control characters."""
    return _check_text("queue name", name, LONGEST_NAME, forbidden=":")


def check_subscriber_name(name: object) -> str:
    return _check_text("subscriber name", name, LONGEST_NAME, forbidden=":.")


def check_key(what: str, key: object) -> str:
    """Refuse a dedupe key, ordering key, request id or record key that cannot be kept as text."""
    if not isinstance(key, str):
        raise InvalidMessageType(f"{what} must be a string, not {type(key).__name__}")
    if not key:
        raise InvalidMessage(f"{what} cannot be empty")
    if len(key) > LONGEST_KEY:
        raise InvalidMessage(f"{what} is longer than {LONGEST_KEY} characters")
    if not _is_text(key):
        raise InvalidMessage(f"{what} contains a character that is not valid Unicode text")
    return key


def check_priority(priority: object) -> int:
    if type(priority) is not int:
        raise InvalidMessageType("priority must be an integer")
    if priority < 0:
        raise InvalidMessage("priority cannot be negative")
    if priority > HIGHEST_PRIORITY:
        raise InvalidMessage(f"priority cannot be greater than {HIGHEST_PRIORITY}")
    return priority


def check_seconds(what: str, value: Any, *, zero: bool = True) -> float:
    """A finite number of seconds, zero or more; ``zero=False`` asks for more than zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongType(f"{what} must be a number of seconds, not {type(value).__name__}")
    if value < 0:
        raise InvalidArgument(f"{what} cannot be negative")
    if not zero and value == 0:
        raise InvalidArgument(f"{what} must be greater than zero")
    # Compared before it is made a float: an int can be larger than any.
    if value > LONGEST_DELAY and value != math.inf:
        raise InvalidArgument(f"{what} cannot be longer than ten years")
    if not math.isfinite(value):
        raise InvalidArgument(f"{what} must be a finite number")
    return float(value)


def check_timeout(timeout: Any) -> float | None:
    """How long a call may block: None for ever, else a number of seconds that is not negative."""
    if timeout is None or timeout == math.inf:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise WrongType(f"'timeout' must be a number of seconds, not {type(timeout).__name__}")
    if not timeout >= 0:
        raise InvalidArgument("'timeout' must be a non-negative number")
    return float(min(timeout, LONGEST_DELAY))


def check_count(what: str, value: Any, *, least: int = 0) -> int:
    """A whole number that is at least ``least``."""
    if type(value) is not int:
        raise WrongType(f"{what} must be an integer, not {type(value).__name__}")
    if value < least:
        raise InvalidArgument(
            f"{what} cannot be negative" if least == 0 else f"{what} must be at least {least}"
        )
    if value > LARGEST_COUNT:
        raise InvalidArgument(f"{what} cannot be greater than {LARGEST_COUNT:,}")
    return value


def check_callables(what: str, items: Any) -> tuple[Callable[..., Any], ...]:
    """One or more functions, given as an iterable."""
    try:
        functions = tuple(items)
    except TypeError:
        raise WrongType(f"{what} must be an iterable of callables") from None
    if not functions:
        raise InvalidArgument(f"{what} cannot be empty")
    for function in functions:
        if not callable(function):
            raise WrongType(f"{what} must be callable, not {type(function).__name__}")
    return functions


def _check_text(what: str, text: object, longest: int, *, forbidden: str) -> str:
    if not isinstance(text, str):
        raise WrongType(f"{what} must be a string, not {type(text).__name__}")
    if not text.strip():
        raise InvalidArgument(f"{what} cannot be empty")
    if len(text) > longest:
        raise InvalidArgument(f"{what} is longer than {longest} characters")
    for character in forbidden:
        if character in text:
            raise InvalidArgument(f"{what} cannot contain {character!r}: {text!r}")
    if text != text.strip() or not _is_text(text) or any(map(_is_control, text)):
        raise InvalidArgument(
            f"{what} cannot contain control characters or white space at its ends: {text!r}"
        )
    return text


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc"


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
