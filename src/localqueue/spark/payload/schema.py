"""The option ``payloadSchema``: what a payload looks like, as DDL or as the JSON of a schema.

Only the JVM can parse DDL, and a data source has none at hand: the text is put together with the
other columns and given to Spark as it is.
"""

from __future__ import annotations

import json
import re

from pyspark.sql.types import StructType

from localqueue.errors import ConfigurationError

_WRAPPED = re.compile(r"\s*struct\s*<(.*)>\s*", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))")
_OPENING, _CLOSING = "(<", ")>"


def payload_names(text: str) -> list[str]:
    """The names of its fields; ConfigurationError when it has none that can be told."""
    if _is_json(text):
        return list(_from_json(text).names)
    names = []
    for field in _fields(_unwrapped(text)):
        found = _NAME.match(field)
        if found is None:
            raise ConfigurationError(
                f"option payloadSchema: {text!r} is not a schema; write n INT, name STRING"
            )
        quoted, plain = found.groups()
        names.append(plain or quoted.replace("``", "`"))
    return names


def ddl(own: StructType, text: str) -> StructType | str:
    """These columns, followed by those of the payload."""
    if _is_json(text):
        return StructType([*own.fields, *_from_json(text).fields])
    mine = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in own)
    return f"{mine}, {_unwrapped(text)}" if mine else _unwrapped(text)


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def _from_json(text: str) -> StructType:
    try:
        return StructType.fromJson(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"option payloadSchema: it is not the JSON of a schema ({error})"
        ) from error


def _unwrapped(text: str) -> str:
    found = _WRAPPED.fullmatch(text)
    return found[1] if found else text


def _fields(text: str) -> list[str]:
    """The parts between commas that stand outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
