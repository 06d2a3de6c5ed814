"""A commit policy whose steps a test can replace."""

from __future__ import annotations

from typing import Any

from localqueue import EffectivelyOnceDelivery, MemoryQueueStore, PersistentQueue
from localqueue.commits.protocol import NOTHING, Done, Extras, Run, Wait
from localqueue.message import QueueMessage

Message = QueueMessage[Any]


class OwnCommit:
    """Writes nothing. Subclasses have something happen at a step."""

    mode = "own"
    local_commit = True
    coordinates_effects = False

    def as_dict(self) -> dict[str, Any]:
        return {"mode": self.mode}

    def commit(self, queue: PersistentQueue[Any]) -> OwnCommit:
        return self

    def begin(self, message: Message) -> Run | Done | Wait:
        return Run()

    def success(self, message: Message, result: Any) -> Extras:
        return NOTHING

    def settled(self, message: Message) -> None: ...

    def failure(self, message: Message, error: BaseException, final: bool) -> Extras:
        return NOTHING

    def extended(self, message: Message, seconds: float) -> None: ...

    def dropped(self, message: Message) -> None: ...

    def recover(self) -> int:
        return 0


def committing(commit: OwnCommit, **options: Any) -> PersistentQueue[Any]:
    """A queue whose workers commit so."""
    options = {"store": MemoryQueueStore()} | options
    policy = EffectivelyOnceDelivery(commit_policy=commit)
    return PersistentQueue("jobs", delivery_policy=policy, **options)
