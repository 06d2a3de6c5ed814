"""Handlers that write down in which trace they run, in whatever thread, task or process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from opentelemetry import baggage, trace


def write_down(value: dict[str, Any]) -> None:
    span = trace.get_current_span().get_span_context()
    kept = {
        "pid": os.getpid(),
        "trace": span.trace_id,
        "span": span.span_id,
        "tenant": baggage.get_baggage("tenant"),
    }
    with Path(value["file"]).open("a") as file:
        file.write(f"{json.dumps(kept)}\n")


async def write_down_async(value: dict[str, Any]) -> None:
    write_down(value)
