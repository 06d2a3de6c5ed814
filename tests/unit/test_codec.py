"""Values as canonical JSON: the same bytes with and without the C encoder."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from localqueue import codec
from localqueue.codec import JSON_CODEC, JsonCodec, decode_headers, encode_headers
from localqueue.errors import DamagedMessage, InvalidMessage

VALUES: list[Any] = [
    None, True, 0, -1, 2**70, 1.5, 1e300, "", "text", "ü", "\u2028", "\0", "😀", 'quote"\\', [], {},
    [1, [2, [3]]], {"b": 1, "a": {"d": 2, "c": []}}, (1, 2), {2: "two", None: 0, True: 1},
]  # fmt: skip


@pytest.fixture
def without_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python whose json module has no accelerator."""
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    monkeypatch.setattr(codec, "_pieces", codec._make_encoder(sort_keys=False))
    monkeypatch.setattr(codec, "_sorted_pieces", codec._make_encoder(sort_keys=True))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_compact_json_in_the_order_of_its_keys(value: Any) -> None:
    body = JSON_CODEC.encode(value)

    assert body == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.usefixtures("without_c")
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_without_the_c_encoder_the_bytes_are_the_same(value: Any) -> None:
    body = JSON_CODEC.encode(value)

    assert body == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_a_fingerprint_is_of_the_value_with_sorted_keys() -> None:
    """It is kept in files, so it stays the same from release to release."""
    value = {"b": 1, "a": {"d": 2, "c": []}}

    fingerprint = JSON_CODEC.fingerprint(value, b"")

    assert fingerprint == zlib.crc32(b'{"a":{"c":[],"d":2},"b":1}')
    assert fingerprint == JSON_CODEC.fingerprint({"a": {"c": [], "d": 2}, "b": 1}, b"")


def test_where_keys_have_no_order_the_fingerprint_is_of_the_bytes() -> None:
    assert JSON_CODEC.fingerprint({1: 1, "a": 2}, b"bytes") == zlib.crc32(b"bytes")


def test_headers_are_kept_in_the_order_of_their_names() -> None:
    encoded = encode_headers({"b": "2", "a": "ü"})

    assert encoded == '{"a":"ü","b":"2"}'.encode()
    assert decode_headers(encoded) == {"a": "ü", "b": "2"}


def test_values_read_together_are_those_read_one_by_one() -> None:
    bodies = [JSON_CODEC.encode(value) for value in VALUES]

    one_by_one = [JSON_CODEC.decode(body) for body in bodies]

    assert JSON_CODEC.decode_many(bodies) == one_by_one
    assert JSON_CODEC.decode_many(bodies[-1:]) == one_by_one[-1:]


@pytest.mark.parametrize("repeat", [1, 40], ids=["few", "more than go together"])
def test_values_written_together_have_the_bytes_they_have_one_by_one(repeat: int) -> None:
    mark = codec._MARK
    values = [*VALUES, mark, [mark], ["a", mark, "b"], {"a": mark, mark: [1, mark, 2]}] * repeat

    bodies = JSON_CODEC.encode_many(values)

    assert bodies == [JSON_CODEC.encode(value) for value in values]


def test_no_values_written_together_are_no_bodies() -> None:
    assert JSON_CODEC.encode_many([]) == []


@pytest.mark.parametrize(
    "bad",
    [object(), float("nan"), "\ud800", b"bytes", "x" * 100, [[[[1]]]]],
    ids=["object", "nan", "surrogate", "bytes", "large", "deep"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_value_that_cannot_be_kept_is_refused_among_others_as_it_is_alone(
    bad: Any, place: int
) -> None:
    small = JsonCodec(max_bytes=50, max_depth=3)
    values: list[Any] = [1, {"a": 2}]
    values.insert(place, bad)

    with pytest.raises(InvalidMessage) as alone:
        small.encode(bad)
    with pytest.raises(InvalidMessage) as among_others:
        small.encode_many(values)

    assert str(among_others.value) == str(alone.value)


def test_a_value_with_many_brackets_that_is_not_deep_is_written_among_others() -> None:
    small = JsonCodec(max_depth=3)
    values: list[Any] = [1, [[], [], [], []], 2]

    assert small.encode_many(values) == [b"1", b"[[],[],[],[]]", b"2"]


@pytest.mark.parametrize(
    "bodies",
    [
        [b"1,2", b"[3", b"4]"],
        [b"[1", b"2]", b"3,4"],
        [b'"a', b'b"', b"1,2"],
        [b"1", b""],
        [b"1]", b"[2"],
        [b"1", b"nothing"],
        [b"1", b"\xff"],
    ],
    ids=repr,
)
def test_what_is_json_only_with_its_neighbours_is_damaged(bodies: list[bytes]) -> None:
    with pytest.raises(DamagedMessage):
        JSON_CODEC.decode_many(bodies)
