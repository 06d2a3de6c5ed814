"""How a store wakes its waiters: by FIFOs beside the file, or inside this process alone."""

from __future__ import annotations

import os

from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.wakeups.condition import ConditionWakeups
from localqueue.stores.sqlite.wakeups.fifo_wakeups import FifoWakeups
from localqueue.stores.sqlite.wakeups.protocol import POLL, Wakeups

__all__ = ["Wakeups", "make_wakeups"]


def make_wakeups(companions: Companions | None) -> Wakeups:
    """For a database with these companions; None for one that no other process can open."""
    if companions is None:
        return ConditionWakeups()
    if hasattr(os, "mkfifo"):
        return FifoWakeups(companions)
    return ConditionWakeups(poll=POLL)
