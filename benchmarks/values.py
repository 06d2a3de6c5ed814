"""What is put: a small JSON object of 200 bytes, as a queue of jobs has it."""

from __future__ import annotations

from hashlib import shake_128
from typing import Any

from localqueue.codec import JSON_CODEC

SIZE = 200


def job(number: int) -> dict[str, Any]:
    value = {"job": "resize", "number": number, "path": "", "width": 1024, "urgent": False}
    return value | {"path": "x" * (SIZE - len(JSON_CODEC.encode(value)))}


def varied_job(number: int) -> dict[str, Any]:
    """As large, and with text that no other has: what is read back cannot be packed away."""
    value = job(number)
    noise = shake_128(str(number).encode()).hexdigest(len(value["path"]))
    return value | {"path": noise[: len(value["path"])]}


def encoded(number: int) -> bytes:
    """The same as bytes, for what does not encode."""
    return JSON_CODEC.encode(job(number))
