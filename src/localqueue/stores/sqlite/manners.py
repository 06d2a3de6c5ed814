"""How the engine treats each kind of call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localqueue.message import Receipt
from localqueue.stores.protocol import StoredMessage
from localqueue.stores.sqlite.group_commit import Manner, Verb
from localqueue.stores.sqlite.verbs.settle import release_many


def release_unseen(leased: Sequence[StoredMessage]) -> Verb[Any] | None:
    """Leases that their caller will never see go back at once."""
    receipts = [Receipt(message.queue, message.id, message.token) for message in leased]
    return (lambda tx: release_many(tx, receipts, 0.0, None)) if receipts else None


def _release_the_second(answer: tuple[Any, Sequence[StoredMessage]]) -> Verb[Any] | None:
    return release_unseen(answer[1])


LEASES = Manner(fleeting=True, undo=release_unseen)
"""A boot ends all leases and charges nobody for it, so none has to survive a power cut."""
EXTENDS = Manner(fleeting=True)
SETTLES_AND_LEASES = Manner(undo=_release_the_second)
