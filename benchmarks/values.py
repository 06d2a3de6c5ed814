"""What is put: a small JSON object of 200 bytes, as a queue of jobs has it."""

from __future__ import annotations

from typing import Any

from localqueue.codec import JSON_CODEC

SIZE = 200


def job(number: int) -> dict[str, Any]:
    value = {"job": "resize", "number": number, "path": "", "width": 1024, "urgent": False}
    return value | {"path": "x" * (SIZE - len(JSON_CODEC.encode(value)))}


def encoded(number: int) -> bytes:
    """The same as bytes, for what does not encode."""
    return JSON_CODEC.encode(job(number))
