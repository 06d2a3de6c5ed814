"""Handlers that do what their message says, in whatever thread, task or process they run.

What they did is told in a file, a line for each, so that tests can see it from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from localqueue.outcome import Reject, Retry, Snooze
from localqueue.workers.context import CurrentMessage, current_message

PATIENCE = 20.0


def act(value: dict[str, Any]) -> Any:
    """Do what ``value["do"]`` says."""
    current = _begin(value)
    if (gate := value.get("until")) is not None:
        wait_for(Path(gate), current if value.get("listens", True) else None)
    return _finish(value, current)


async def act_async(value: dict[str, Any]) -> Any:
    current = _begin(value)
    gate = value.get("until")
    deadline = time.monotonic() + PATIENCE
    while gate is not None and not _is_open(gate):
        assert time.monotonic() < deadline, "nobody opened the gate"
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            if not value.get("swallows"):
                raise
    return _finish(value, current)


def _begin(value: dict[str, Any]) -> CurrentMessage:
    tell(value, "began")
    current = current_message()
    for so_far in value.get("reports", ()):
        current.progress(so_far)
    return current


def wait_for(gate: Path, current: CurrentMessage | None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not gate.exists():
        assert time.monotonic() < deadline, "nobody opened the gate"
        if current is None:
            time.sleep(0.005)
        else:
            current.check()
            current.wait(0.005)


def _is_open(gate: str) -> bool:
    return Path(gate).exists()


def _finish(value: dict[str, Any], current: CurrentMessage) -> Any:
    match value["do"]:
        case "return":
            pass
        case "raise":
            raise ValueError(value.get("text", "boom"))
        case "raise once" if current.attempt == 1:
            raise ValueError("only the first time")
        case "exit":
            raise SystemExit(3)
        case "end of generator":
            raise GeneratorExit
        case "interrupt":
            raise KeyboardInterrupt
        case "missing code":
            raise ModuleNotFoundError("No module named 'gone'")
        case "retry at once" if current.attempt == 1:
            raise Retry(after=0.0) from ValueError("busy")
        case "reject":
            raise Reject("no such account")
        case "snooze" if current.attempt == 1:
            raise Snooze(0.01)
        case "who":
            message = current.message
            tell(value, f"{message.id} {message.leased_by} {current.attempt}")
        case "abort":
            os.kill(os.getpid(), signal.SIGKILL)
    tell(value, "ended")
    return value.get("result")


def tell(value: dict[str, Any], what: str) -> None:
    line = json.dumps([value.get("name"), what]) + "\n"
    file = os.open(value["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
