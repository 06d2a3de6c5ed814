"""Commits that note what they are told."""

from __future__ import annotations

import threading
from typing import Any

from localqueue.commits.protocol import NOTHING, Extras, Run
from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from tests.unit.workers.acts import PATIENCE


class Noting:
    """A commit, and the policy that opens it, that notes what it is told."""

    mode = "noting"
    local_commit = True
    coordinates_effects = False

    def __init__(self) -> None:
        self.told: list[str] = []

    def as_dict(self) -> dict[str, Any]:
        return {"mode": self.mode, "local_commit": True, "coordinates_effects": False}

    def commit(self, queue: PersistentQueue[Any]) -> Noting:
        return self

    def begin(self, message: QueueMessage[Any]) -> Run:
        return Run()

    def success(self, message: QueueMessage[Any], result: Any) -> Extras:
        self.told.append("success")
        return NOTHING

    def failure(self, message: QueueMessage[Any], error: BaseException, final: bool) -> Extras:
        self.told.append(f"failure {type(error).__name__} {final}")
        return NOTHING

    def settled(self, message: QueueMessage[Any]) -> None:
        self.told.append("settled")

    def extended(self, message: QueueMessage[Any], seconds: float) -> None:
        """Which costs nothing here."""

    def dropped(self, message: QueueMessage[Any]) -> None:
        self.told.append("dropped")

    def recover(self) -> int:
        return 0


class SlowToUndo(Noting):
    """What it undoes takes until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.is_at_it = threading.Event()

    def failure(self, message: QueueMessage[Any], error: BaseException, final: bool) -> Extras:
        self.is_at_it.set()
        assert self.gate.wait(PATIENCE)
        return super().failure(message, error, final)
