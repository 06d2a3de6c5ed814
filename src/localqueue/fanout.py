"""A topic's fixed subscribers, kept equal in the store."""

from __future__ import annotations

from localqueue.clock import Now
from localqueue.policies.resolved import ResolvedPolicies
from localqueue.stores.protocol import QueueStore


def keep_subscribers(store: QueueStore, policies: ResolvedPolicies, now: Now) -> None:
    """Subscribe those that a static policy names and no others; the last configuration wins.

    One that is no longer named keeps the messages it has. Dynamic subscribers are left alone.
    """
    if policies.dynamic_subscriptions or not policies.subscribers:
        return
    present = store.subscribers(policies.name)
    for name in present:
        if name not in policies.subscribers:
            store.unsubscribe(policies.name, name, now=now)
    for name in policies.subscribers:
        if name not in present:
            store.subscribe(policies.name, name, now=now)
