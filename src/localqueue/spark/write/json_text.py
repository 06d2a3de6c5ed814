"""Columns of JSON text, checked without making values of them one by one.

What is stored has to be what ``JsonCodec`` would have stored and can read again: one JSON value
without anything around it, no NaN or Infinity, no lone surrogates, and within its limits. The text
itself is kept as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.codec import DEEPEST_VALUE, JSON_CODEC, LARGEST_VALUE
from localqueue.errors import DamagedMessage, InvalidMessage
from localqueue.spark.write.bad_row import BadRow

AT_ONCE = 500
"""Texts that are read together. Thousands of values at a time keep the garbage collector busy."""

_NEEDS_A_LOOK = (
    r"^[ \t\r\n]|[ \t\r\n]$"
    # A surrogate that may stand alone, and numbers that may be too large for a float.
    r"|\\u[dD][89abAB]|[0-9][eE]\+?[0-9]{3}|[0-9]{300}"
    # More brackets than the deepest value can have; most have fewer, and need no walk.
    rf"|(?:[\[{{][^\[{{]*){{{DEEPEST_VALUE + 1}}}"
)
"""What most texts do not have, found in all of them by one automaton."""

_MARK = os.urandom(8).hex()
"""Stands between texts that are read together; no text can know it."""
_BETWEEN = f',"{_MARK}",'


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_scan_once: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder(parse_constant=_refuse))[
    "scan_once"
]


def check_texts(texts: pa.Array[Any]) -> pa.Array[Any]:
    """The texts as they are to be stored: the same, without white space around them.

    BadRow for the first that cannot be stored. None of them may be null.
    """
    sizes = pc.binary_length(texts)
    longest = pc.max(sizes).as_py() or 0
    if longest > LARGEST_VALUE:
        raise BadRow(
            pc.index(sizes, longest).as_py(),
            f"the value is {longest:,} bytes as JSON; at most {LARGEST_VALUE:,} fit",
        )
    suspicious = pc.match_substring_regex(texts, _NEEDS_A_LOOK)
    if pc.any(suspicious).as_py():
        texts = _looked_at(texts, suspicious.to_pylist())
    listed = texts.to_pylist()
    for start in range(0, len(listed), AT_ONCE):
        _check(listed[start : start + AT_ONCE], start)
    return texts


def _check(texts: list[str], start: int) -> None:
    try:
        together = f"[{_BETWEEN.join(texts)}]"
        values, end = _scan_once(together, 0)
        # One that is no JSON by itself could make some with its neighbours, but not around this.
        marks = values[1::2]
        if (
            end == len(together)
            and len(values) == 2 * len(texts) - 1
            and marks.count(_MARK) == len(marks)
        ):
            return
    except (ValueError, RecursionError, StopIteration):
        pass
    for place, text in enumerate(texts, start):
        try:
            _value(text)
        except DamagedMessage as error:
            raise BadRow(place, error) from None


def _looked_at(texts: pa.Array[Any], suspicious: list[bool]) -> pa.Array[Any]:
    looked_at = []
    for place, (text, look) in enumerate(zip(texts.to_pylist(), suspicious, strict=True)):
        if look:
            text = text.strip(" \t\r\n")
            try:
                # What cannot be written as JSON again was read as something that JSON has not.
                JSON_CODEC.encode(_value(text))
            except InvalidMessage as error:
                raise BadRow(place, error) from None
        looked_at.append(text)
    return pa.array(looked_at, texts.type)


def _value(text: str) -> Any:
    try:
        value, end = _scan_once(text, 0)
    except StopIteration as error:
        raise DamagedMessage(
            f"the value is not JSON: a value is missing at character {error.value}"
        ) from None
    except ValueError as error:
        raise DamagedMessage(f"the value is not JSON: {error}") from None
    except RecursionError:
        raise DamagedMessage(f"the value is nested deeper than {DEEPEST_VALUE} levels") from None
    if end != len(text):
        raise DamagedMessage(f"the value is not JSON: something follows at character {end}")
    return value
