"""What runs when a message is stored: notification, then dispatch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from localqueue.calls.face import Face
from localqueue.checks import check_count
from localqueue.errors import ConfigurationError
from localqueue.message import QueueMessage
from localqueue.policies.dispatch import DispatchPolicy, LeasingDispatchPolicy
from localqueue.policies.notification import NotificationPolicy
from localqueue.policies.resolved import ResolvedPolicies
from localqueue.stores.present import present_value
from localqueue.stores.protocol import Enqueued, Fate
from localqueue.telemetry.emitter import Emitter


class Hooks:
    """Run in this order, once per stored message; what one raises reaches the caller of put."""

    def __init__(self, policies: ResolvedPolicies, emitter: Emitter) -> None:
        self._emitter = emitter
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
                    notify(self._notification, stored, self._emitter)
                if self._dispatch.dispatches_on_put:
                    dispatch(self._dispatch, stored, self._emitter)


def notify(policy: NotificationPolicy, message: QueueMessage[Any], emitter: Emitter) -> None:
    if (announce := emitter.announce) is None:
        policy.notify(message)
    else:
        _timed(policy.notify, message, announce.notified)


def dispatch(policy: DispatchPolicy, message: QueueMessage[Any], emitter: Emitter) -> None:
    if (announce := emitter.announce) is None:
        policy.dispatch(message)
    else:
        _timed(policy.dispatch, message, announce.dispatched)


def _timed(
    call: Callable[[QueueMessage[Any]], None],
    message: QueueMessage[Any],
    announce: Callable[[QueueMessage[Any], float, BaseException | None], None],
) -> None:
    """Announce the call with its duration, and with what it raised."""
    began, raised = time.perf_counter(), None
    try:
        call(message)
    except BaseException as error:
        raised = error
        raise
    finally:
        announce(message, time.perf_counter() - began, raised)


async def dispatch_pending(
    face: Face,
    policy: DispatchPolicy,
    queue: object,
    dispatch_next: Callable[[], bool],
    limit: int | None,
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
    if isinstance(policy, LeasingDispatchPolicy):
        return 0 if limit == 0 else await face.run(lambda: policy.work_off(queue, limit))
    done = 0
    while (limit is None or done < limit) and await face.run(dispatch_next):
        done += 1
    return done
