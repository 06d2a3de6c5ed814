"""LocalAtomicCommit: ledger, result and acknowledgement, and nothing else."""

from __future__ import annotations

from typing import Any

from localqueue.commits.effects import Resumed
from localqueue.commits.protocol import Wait
from localqueue.commits.work import Work
from localqueue.message import QueueMessage
from localqueue.stores.records import RecordChange


class NoEffects:
    """Nothing happens at any step; a policy overrides those at which it acts.

    What failed is dropped, unless the policy says otherwise.
    """

    is_idle = True
    is_foreign = False
    acts = False
    shows_result = False

    def resume(self, message: QueueMessage[Any]) -> Resumed | Wait | None:
        return None

    def act(self, work: Work) -> None: ...

    def decided(self, work: Work) -> list[RecordChange]:
        return []

    def save_elsewhere(self, work: Work) -> None: ...

    def with_ack(self, work: Work) -> list[RecordChange]:
        return []

    def settled(self, message: QueueMessage[Any]) -> None: ...

    def failed(
        self, message: QueueMessage[Any], error: BaseException, final: bool
    ) -> list[RecordChange]:
        self.dropped(message)
        return []

    def dropped(self, message: QueueMessage[Any]) -> None: ...

    def recover(self) -> int:
        return 0
