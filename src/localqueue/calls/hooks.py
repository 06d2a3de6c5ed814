"""What runs when a message is stored: notification, then dispatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localqueue.calls.face import Face
from localqueue.checks import check_count
from localqueue.errors import ConfigurationError
from localqueue.message import QueueMessage
from localqueue.policies.dispatch import DispatchPolicy
from localqueue.policies.resolved import ResolvedPolicies
from localqueue.stores.present import present_value
from localqueue.stores.protocol import Enqueued, Fate


class Hooks:
    """Run in this order, once per stored message; what one raises reaches the caller of put."""

    def __init__(self, policies: ResolvedPolicies) -> None:
        self._notification = policies.notification_policy
        self._dispatch = policies.dispatch_policy

    def wanted(self) -> bool:
        return self._notification.notifies_on_put or self._dispatch.dispatches_on_put

    def run(
        self, answers: Sequence[Enqueued], messages: Sequence[QueueMessage[Any]], drift: float
    ) -> None:
        for answer, message in zip(answers, messages, strict=True):
            if answer.fate is not Fate.STORED:
                continue
            copies = [present_value(copy, message.value, drift) for copy in answer.copies]
            for stored in copies or [message]:
                if self._notification.notifies_on_put:
                    self._notification.notify(stored)
                if self._dispatch.dispatches_on_put:
                    self._dispatch.dispatch(stored)


async def dispatch_pending(
    face: Face, policy: DispatchPolicy, dispatch_next: Callable[[], bool], limit: int | None
) -> int:
    """Dispatch what is ready, one message after the other, until nothing is; how many.

    ``dispatch_next`` leases, dispatches and settles one message; False when there is none.
    """
    if not policy.dispatches_on_put:
        raise ConfigurationError(
            "dispatch_pending() needs handlers; add dispatch_policy=CallbackDispatcher([...])"
        )
    if limit is not None:
        check_count("limit", limit)
    done = 0
    while (limit is None or done < limit) and await face.run(dispatch_next):
        done += 1
    return done
