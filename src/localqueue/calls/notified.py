"""Waiting for a notification policy, instead of for the store."""

from __future__ import annotations

from typing import Any

from localqueue.calls.attachment import Attachment
from localqueue.calls.face import Face
from localqueue.checks import check_timeout
from localqueue.errors import ConfigurationError


async def wait_for_notification(attachment: Attachment, face: Face, timeout: float | None) -> bool:
    """Wait until a put is notified, or something is ready already; False when time is over."""
    policy: Any = attachment.policies.notification_policy
    if not face.can_hear(policy):
        raise ConfigurationError(
            "wait_for_notification() needs a notification that can be waited for; add"
            " notification_policy=InProcessNotification()"
        )
    seconds = check_timeout(timeout)
    when = attachment.when or await face.open()
    policy.clear()
    # Looked after clearing, so that a put in between sets it again.
    if await face.ask(lambda store: store.qsize(attachment.name, now=when.now)):
        return True
    return await face.hear(policy, seconds)
