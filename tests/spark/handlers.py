"""Handlers that executors import, for the tests of workers on Spark."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from localqueue import Reject, Retry, Snooze
from localqueue.spark.workers.batch_parcel import BatchParcel
from localqueue.spark.workers.handler_task import HandlerTask
from localqueue.workers import current_message
from localqueue.workers.parcel import unpack

PATIENCE = 60.0


class OutOfPaper(Exception):
    """An error of the user's own, with more than a text."""

    def __init__(self, printer: str, tray: int) -> None:
        super().__init__(f"{printer} has no paper in tray {tray}")
        self.printer = printer
        self.tray = tray


def write_down(value: dict[str, Any]) -> None:
    """A line for each call: which message, in which delivery, in which process."""
    current = current_message()
    note(value["diary"], f"{value['n']} {current.attempt} {os.getpid()}")


def note(diary: str, line: str) -> None:
    file = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def notes(diary: Path) -> list[list[str]]:
    return [line.split() for line in diary.read_text().splitlines()] if diary.exists() else []


def wait_for_gate(value: dict[str, Any]) -> None:
    """Messages with a gate wait until it is there; it says when it has begun to wait."""
    if "gate" in value:
        note(value["diary"], "waits")
        _wait_until_there(Path(value["gate"]), value.get("patience", PATIENCE))


def _wait_until_there(path: Path, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not path.exists():
        assert time.monotonic() < end, "nobody opened the gate"
        time.sleep(0.01)


def by_its_word(value: str) -> str | None:
    """Each message says how it is to end."""
    match value:
        case "retry":
            raise Retry(0.0)
        case "reject":
            raise Reject("never")
        case "snooze" if current_message().attempt == 1:
            raise Snooze(0.0)
        case "paper":
            raise OutOfPaper("lp0", 2)
        case "lambda":
            return lambda: None  # type: ignore[return-value]
        case "coroutine":
            return asyncio.sleep(0)  # type: ignore[return-value]
        case "import":
            raise ImportError("no module of this name")
        case "exit":
            raise SystemExit(3)
    return value


async def awaits(value: dict[str, Any]) -> int:
    """A coroutine function, which knows its message after it has waited too."""
    await asyncio.sleep(0)
    write_down(value)
    return int(value["n"])


def reports(value: Any) -> None:
    """Progress is told while it runs, so it runs until somebody heard of it."""
    current = current_message()
    current.progress(0.5)
    _wait_until_there(Path(value))


def sleeps(value: str) -> None:
    """``deaf`` does not end when it is told to."""
    if value == "sleeps":
        time.sleep(PATIENCE)
    while value == "deaf":
        try:
            time.sleep(PATIENCE)
        except BaseException:
            continue


def dies(value: dict[str, Any]) -> None:
    """Poison takes its process with it, after it has written down that it began."""
    write_down(value)
    if value.get("poison"):
        os.kill(os.getpid(), signal.SIGKILL)


def waits_or_dies(value: dict[str, Any]) -> None:
    """Waits for its gate, if it has one; poison takes its process with it then."""
    wait_for_gate(value)
    if value.get("poison"):
        os.kill(os.getpid(), signal.SIGKILL)


def nap(_: Any) -> None:
    time.sleep(0.05)


class DiesBefore(HandlerTask):
    """The task of a message whose executor is lost before its Python has looked at it.

    The value says how often, and the diary how often it has been.
    """

    def run(self, parcel: bytes) -> bytes:
        batch: BatchParcel = unpack(parcel)
        context = TaskContext.get()
        if batch.size and context is not None and context.attemptNumber() == 0:
            for fields in unpack(batch.messages):
                self._die_if_so(fields["value"])
        return HandlerTask.run(self, parcel)

    def _die_if_so(self, value: dict[str, Any]) -> None:
        if "deaths" in value and len(notes(Path(value["deaths"]))) < value["times"]:
            note(value["deaths"], "died")
            os.kill(os.getpid(), signal.SIGKILL)


def _open_files() -> list[str]:
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(link.readlink()))
    return names


def kills_its_executor(value: dict[str, Any]) -> None:
    """Poison takes the JVM of its executor with it. The diary has who has opened the store."""
    write_down(value)
    if any(value["store"] in name for name in _open_files()):
        note(value["diary"], f"{value['n']} has the store open")
    if value.get("poison"):
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)
        # The end of this process follows.
        time.sleep(PATIENCE)
