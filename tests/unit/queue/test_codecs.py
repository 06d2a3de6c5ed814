"""Values as bytes: each message remembers its codec, and what cannot be read is set aside."""

from __future__ import annotations

import json
from queue import Empty
from typing import Any

import pytest

from localqueue.errors import DamagedMessage, InvalidMessage, InvalidMessageType
from localqueue.policies import (
    BytesCodec,
    DedupeKeySupport,
    JsonCodec,
    PublishSubscribeRouting,
    StaticFanoutSubscriptions,
)
from tests.unit.queue.phrases import NewQueue, Queue, values


class CaseCodec:
    """A user's own codec: text, kept in capitals."""

    id = "capitals"

    def encode(self, value: Any) -> bytes:
        return str(value).upper().encode()

    def decode(self, body: bytes) -> str:
        text = body.decode()
        if text != text.upper():
            raise DamagedMessage("not in capitals")
        return text

    def fingerprint(self, value: Any, body: bytes) -> int:
        return len(body)

    def as_dict(self) -> dict[str, Any]:
        return {"type": self.id}


class SloppyCodec(CaseCodec):
    """Says that it is the other one, and writes what that one cannot read."""

    def encode(self, value: Any) -> bytes:
        return str(value).encode()


def test_bytes_come_back_as_they_were(new_queue: NewQueue) -> None:
    queue = new_queue(codec_policy=BytesCodec())
    body = bytes(range(256))

    message = queue.put(body)
    queue.put(bytearray(b"array"))
    queue.put(b"")

    assert message.codec == "bytes"
    assert values(queue.get_messages(3)) == [body, b"array", b""]


def test_a_queue_of_bytes_takes_nothing_else(new_queue: NewQueue) -> None:
    queue = new_queue(codec_policy=BytesCodec(max_bytes=4))

    with pytest.raises(InvalidMessageType):
        queue.put("text")
    with pytest.raises(InvalidMessage):
        queue.put(b"12345")

    assert queue.stats().total == 0


def test_limits_are_the_queues_own(new_queue: NewQueue) -> None:
    queue = new_queue(codec_policy=JsonCodec(max_bytes=10, max_depth=2))

    with pytest.raises(InvalidMessage, match="at most 10"):
        queue.put("a longer text")
    with pytest.raises(InvalidMessage, match="2 levels"):
        queue.put([[[]]])

    assert queue.put([[]]).value == [[]]


def test_each_message_is_read_with_the_codec_it_was_written_with(new_queue: NewQueue) -> None:
    json_queue, bytes_queue = new_queue(), new_queue(codec_policy=BytesCodec())
    json_queue.put({"a": 1})
    bytes_queue.put(b"raw")

    assert values(json_queue.peek(2)) == [{"a": 1}, b"raw"]
    assert values(bytes_queue.get_messages(2)) == [{"a": 1}, b"raw"]


def test_a_codec_of_ones_own_is_used_and_remembered(new_queue: NewQueue) -> None:
    queue = new_queue(codec_policy=CaseCodec())

    message = queue.put("text")

    assert (message.value, message.codec) == ("text", "capitals")
    assert queue.get() == "TEXT"


def test_the_fingerprint_of_the_codec_tells_a_conflict(new_queue: NewQueue) -> None:
    queue = new_queue(
        codec_policy=CaseCodec(), deduplication_policy=DedupeKeySupport(on_conflict="error")
    )
    queue.put("abc", dedupe_key="k")

    assert queue.put("xyz", dedupe_key="k").duplicate
    with pytest.raises(InvalidMessage):
        queue.put("longer", dedupe_key="k")


def test_what_cannot_be_decoded_becomes_a_dead_letter_and_the_next_is_handed_out(
    new_queue: NewQueue,
) -> None:
    new_queue(codec_policy=CaseCodec()).put("unreadable elsewhere")
    plain: Queue = new_queue()
    plain.put("fine")

    assert plain.get(block=False) == "fine"

    [letter] = plain.dead_letters()
    assert letter.value is None
    assert letter.last_error is not None
    assert letter.last_error["type"] == "DamagedMessage"
    assert "capitals" in letter.last_error["message"]
    with pytest.raises(Empty):
        plain.get(block=False)


def test_what_its_own_codec_cannot_decode_becomes_a_dead_letter_too(new_queue: NewQueue) -> None:
    queue = new_queue(codec_policy=CaseCodec())
    new_queue(codec_policy=SloppyCodec()).put_many(["small", "letters"])
    queue.put("fine")

    assert queue.get(block=False) == "FINE"

    letters = queue.dead_letters()
    assert [letter.last_error and letter.last_error["message"] for letter in letters] == [
        "not in capitals",
        "not in capitals",
    ]


def test_a_dead_letter_that_could_not_be_read_is_delivered_where_its_codec_is_known(
    new_queue: NewQueue,
) -> None:
    knows = new_queue(codec_policy=CaseCodec())
    message = knows.put("text")
    with pytest.raises(Empty):
        new_queue().get(block=False)

    assert knows.requeue_dead(message.id)

    assert knows.get(block=False) == "TEXT"


def test_looking_shows_an_unreadable_value_as_none_and_changes_nothing(
    new_queue: NewQueue,
) -> None:
    message = new_queue(codec_policy=CaseCodec()).put("text")
    plain = new_queue()

    found = plain.inspect(message.id)

    assert found is not None
    assert (found.value, found.state) == (None, "ready")
    assert values(plain.peek()) == [None]
    assert plain.qsize() == 1


@pytest.mark.parametrize("mode", ["copy", "cursor"])
def test_subscribers_read_what_the_topics_codec_wrote(new_queue: NewQueue, mode: str) -> None:
    topic = new_queue(
        codec_policy=BytesCodec(),
        routing_policy=PublishSubscribeRouting(mode),
        subscription_policy=StaticFanoutSubscriptions(["one", "two"]),
    )

    topic.put(b"\xff")

    assert [topic.subscriber_queue(name).get() for name in ("one", "two")] == [b"\xff", b"\xff"]


def test_json_is_stored_as_plain_json(queue: Queue) -> None:
    message = queue.put({"ä": [1, None]})

    stored = queue.store.read("jobs", message.id)

    assert stored is not None
    assert json.loads(stored.body) == {"ä": [1, None]}
    assert stored.body == '{"ä":[1,null]}'.encode()
