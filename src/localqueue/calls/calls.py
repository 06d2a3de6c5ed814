"""Every call that puts, gets, settles or waits, over one face."""

from __future__ import annotations

from collections.abc import Callable

from localqueue.calls.attachment import Attachment
from localqueue.calls.face import Face
from localqueue.calls.getting import Getting
from localqueue.calls.hooks import dispatch_pending
from localqueue.calls.in_force import InForce
from localqueue.calls.notified import wait_for_notification
from localqueue.calls.putting import Putting
from localqueue.calls.room import Room
from localqueue.calls.settling import Settling
from localqueue.calls.traced_putting import TracedPutting


class Calls:
    """The coroutines behind the methods of a queue, by what they do."""

    def __init__(self, attachment: Attachment, face: Face) -> None:
        self._attachment = attachment
        self._face = face
        in_force = InForce(attachment, face)
        self.room = Room(attachment, face)
        self._putting = Putting(attachment, face, in_force, self.room)
        self.putting: Putting | TracedPutting = self._putting
        self.getting = Getting(attachment, face)
        self.settling = Settling(attachment, face, in_force)
        attachment.emitter.when_traced(self._choose_putting)
        self._choose_putting()

    async def wait_for_notification(self, timeout: float | None) -> bool:
        return await wait_for_notification(self._attachment, self._face, timeout)

    async def dispatch_pending(
        self, queue: object, dispatch_next: Callable[[], bool], limit: int | None
    ) -> int:
        policy = self._attachment.policies.dispatch_policy
        return await dispatch_pending(self._face, policy, queue, dispatch_next, limit)

    def _choose_putting(self) -> None:
        """A put that nobody traces does not even ask whether somebody does."""
        emitter = self._attachment.emitter
        traced = emitter.tracing is not None
        self.putting = TracedPutting(self._putting, emitter) if traced else self._putting
