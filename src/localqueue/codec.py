"""How a value becomes bytes: one canonical JSON encoder, with limits, and a checksum."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from localqueue.checks import check_count
from localqueue.errors import DamagedMessage, InvalidMessage, InvalidMessageType

LARGEST_VALUE = 16 * 1024 * 1024
DEEPEST_VALUE = 100
MOST_HEADERS = 64
LARGEST_HEADERS = 16 * 1024

# What raw_decode calls; a batch feels the step in between.
_scan_once: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]
_MARK = os.urandom(8).hex()
"""Stands between values that are read or written together; no stored value can know it."""
_BETWEEN = f',"{_MARK}",'.encode()
_TOGETHER = 100
"""Values that are written in one go: more gain nothing, and large ones would fill the memory."""


class Codec(Protocol):
    """Turns values into bytes and back. ``id`` is kept with the message and chooses the decoder."""

    @property
    def id(self) -> str: ...

    def encode(self, value: Any) -> bytes:
        """The bytes to store; InvalidMessage when the value cannot be kept faithfully."""

    def decode(self, body: bytes) -> Any:
        """The value again; DamagedMessage when these bytes cannot come from ``encode``."""

    def fingerprint(self, value: Any, body: bytes) -> int:
        """Equal for equal values, whatever the order of their keys."""

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """JSON as UTF-8 without NaN, Infinity or lone surrogates; at most this large and this deep.

    Tuples come back as lists and other keys as strings, as JSON has it. Keys keep their order.
    """

    max_bytes: int = LARGEST_VALUE
    max_depth: int = DEEPEST_VALUE

    def __post_init__(self) -> None:
        check_count("max_bytes", self.max_bytes, least=1)
        check_count("max_depth", self.max_depth, least=1)

    @property
    def id(self) -> str:
        return "json"

    def encode(self, value: Any) -> bytes:
        try:
            body = "".join(_pieces(value, 0)).encode()
        except UnicodeEncodeError:
            raise InvalidMessage(
                "queue values must be JSON-serializable: a string holds a lone surrogate,"
                " which is not text"
            ) from None
        except (TypeError, ValueError) as error:
            hint = "; codec_policy=BytesCodec() stores bytes" if isinstance(value, bytes) else ""
            raise InvalidMessage(
                f"queue values must be JSON-serializable: {error}{hint}"
            ) from error
        except RecursionError:
            raise InvalidMessage(
                f"queue values may be nested at most {self.max_depth} levels deep,"
                " and must not contain themselves"
            ) from None
        if len(body) > self.max_bytes:
            raise InvalidMessage(
                f"the value is {len(body):,} bytes as JSON; at most {self.max_bytes:,} fit"
            )
        # A value cannot be deeper than it has brackets, so most are passed without a walk.
        if (
            body.count(b"[") + body.count(b"{") > self.max_depth
            and _depth(value, self.max_depth) > self.max_depth
        ):
            raise InvalidMessage(f"queue values may be nested at most {self.max_depth} levels deep")
        return body

    def encode_many(self, values: Sequence[Any]) -> list[bytes]:
        """What ``encode`` gives for each, a hundred in one go."""
        bodies: list[bytes] = []
        for start in range(0, len(values), _TOGETHER):
            part = values[start : start + _TOGETHER]
            # One by one when they cannot be told apart, or when one of them needs a closer look.
            bodies += self._encode_together(part) or [self.encode(value) for value in part]
        return bodies

    def _encode_together(self, values: Sequence[Any]) -> list[bytes] | None:
        marked = [_MARK] * (2 * len(values) - 1)
        marked[::2] = values
        try:
            bodies = "".join(_pieces(marked, 0)).encode()[1:-1].split(_BETWEEN)
        except (TypeError, ValueError, RecursionError):
            return None
        if (
            len(bodies) == len(values)
            and max(map(len, bodies)) <= self.max_bytes
            and max([body.count(b"[") + body.count(b"{") for body in bodies]) <= self.max_depth
        ):
            return bodies
        return None

    def decode(self, body: bytes) -> Any:
        try:
            text = str(body, "utf-8")
            value, end = _scan_once(text, 0)
        except (ValueError, RecursionError) as error:
            raise DamagedMessage(f"the stored value is not JSON: {error}") from error
        except StopIteration as error:
            raise DamagedMessage(
                f"the stored value is not JSON: expecting a value at character {error.value}"
            ) from None
        if end != len(text):
            raise DamagedMessage("the stored value is followed by something else")
        return value

    def decode_many(self, bodies: Sequence[bytes]) -> list[Any]:
        """What ``decode`` gives for each, in one scan."""
        try:
            text = str(b"[%b]" % _BETWEEN.join(bodies), "utf-8")
            values, end = _scan_once(text, 0)
        except (ValueError, RecursionError, StopIteration):
            return [self.decode(body) for body in bodies]
        # One that is no JSON by itself could make some with its neighbours, but not around this.
        marks = [_MARK] * (len(bodies) - 1)
        if end == len(text) and len(values) == len(bodies) + len(marks) and values[1::2] == marks:
            return list(values[::2])
        return [self.decode(body) for body in bodies]

    def fingerprint(self, value: Any, body: bytes) -> int:
        try:
            return zlib.crc32("".join(_sorted_pieces(value, 0)).encode())
        except TypeError:  # keys of mixed types have no order
            return zlib.crc32(body)

    def as_dict(self) -> dict[str, Any]:
        return {"type": self.id, "max_bytes": self.max_bytes, "max_depth": self.max_depth}


@dataclass(frozen=True, slots=True)
class BytesCodec:
    """Values are bytes already and are stored as they are."""

    max_bytes: int = LARGEST_VALUE

    def __post_init__(self) -> None:
        check_count("max_bytes", self.max_bytes, least=1)

    @property
    def id(self) -> str:
        return "bytes"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise InvalidMessageType(
                f"a queue with BytesCodec takes bytes, not {type(value).__name__}"
            )
        body = bytes(value)
        if len(body) > self.max_bytes:
            raise InvalidMessage(
                f"the value is {len(body):,} bytes; at most {self.max_bytes:,} can be stored"
            )
        return body

    def decode(self, body: bytes) -> bytes:
        return body

    def fingerprint(self, value: Any, body: bytes) -> int:
        return zlib.crc32(body)

    def as_dict(self) -> dict[str, Any]:
        return {"type": self.id, "max_bytes": self.max_bytes}


def _make_encoder(*, sort_keys: bool) -> Callable[[Any, int], Iterable[str]]:
    """``JSONEncoder.iterencode`` without making the C encoder anew for every value.

    Its second argument is the level of indentation: 0.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        # No memory of what it is inside of: a circle ends as a value that is nested too deep.
        check_circular=False,
        separators=(",", ":"),
        sort_keys=sort_keys,
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: encoder.iterencode(value)
    quote = json.encoder.encode_basestring
    made: Callable[[Any, int], Iterable[str]] = make(
        None, encoder.default, quote, None, ":", ",", sort_keys, False, False
    )
    return made


_pieces = _make_encoder(sort_keys=False)
_sorted_pieces = _make_encoder(sort_keys=True)
JSON_CODEC = JsonCodec()
BYTES_CODEC = BytesCodec()
_KNOWN: dict[str, Codec] = {"json": JSON_CODEC, "bytes": BYTES_CODEC}


def decoder(codec_id: str, own: Codec) -> Codec:
    """The codec that reads messages of this id: the queue's own, or one that everybody has."""
    if codec_id == own.id:
        return own
    try:
        return _KNOWN[codec_id]
    except KeyError:
        raise DamagedMessage(
            f"the message was written with the codec {codec_id!r}; give the queue that codec"
        ) from None


def readable_codecs(own: Codec) -> tuple[str, ...]:
    """The ids that ``decoder`` knows."""
    return (own.id, *_KNOWN)


def encode_headers(headers: Mapping[str, str] | None) -> bytes | None:
    """Headers as canonical JSON: text to text, few and small."""
    if not headers:
        if headers is not None and not isinstance(headers, Mapping):
            raise InvalidMessageType("headers must be a mapping of strings to strings")
        return None
    if not isinstance(headers, Mapping):
        raise InvalidMessageType("headers must be a mapping of strings to strings")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMessageType("headers must be a mapping of strings to strings")
        if not name:
            raise InvalidMessage("a header's name cannot be empty")
    try:
        encoded = "".join(_sorted_pieces(dict(headers), 0)).encode()
    except UnicodeEncodeError:
        raise InvalidMessage("headers hold a lone surrogate, which is not text") from None
    if len(headers) > MOST_HEADERS or len(encoded) > LARGEST_HEADERS:
        raise InvalidMessage(
            f"headers are limited to {MOST_HEADERS} and {LARGEST_HEADERS:,} bytes together"
        )
    return encoded


def decode_headers(headers: bytes | None) -> dict[str, str]:
    return json.loads(headers) if headers else {}


def checksum(body: bytes, headers: bytes | None, codec: str | None = None) -> int:
    """What is stored beside value, headers and codec, so that damage is seen before a handler does.

    ``codec`` is None for JSON, as stores keep it.
    """
    start = zlib.crc32(headers) if headers else 0
    return zlib.crc32(body, zlib.crc32(codec.encode(), start) if codec else start)


def _depth(value: Any, limit: int) -> int:
    deepest, todo = 0, [(value, 1)]
    while todo and deepest <= limit:
        item, level = todo.pop()
        if isinstance(item, dict):
            children: Any = item.values()
        elif isinstance(item, (list, tuple)):
            children = item
        else:
            continue
        deepest = max(deepest, level)
        todo.extend((child, level + 1) for child in children)
    return deepest
