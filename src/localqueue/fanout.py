"""A topic's fixed subscribers, made known to the store."""

from __future__ import annotations

from localqueue.clock import Now
from localqueue.policies.resolved import ResolvedPolicies
from localqueue.stores.protocol import QueueStore


def add_subscribers(store: QueueStore, policies: ResolvedPolicies, now: Now) -> None:
    """Subscribe those that a static policy names.

    Others that the store has stay subscribed: they may be those of a newer configuration, and what
    they have not read would be lost. ``unsubscribe`` takes one away on purpose.
    """
    present = store.subscribers(policies.name) if policies.subscribers else []
    for name in policies.subscribers:
        if name not in present:
            store.subscribe(policies.name, name, now=now)
