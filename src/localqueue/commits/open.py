"""The commit of a queue: what its delivery policy asks for, bound to its store."""

from __future__ import annotations

from typing import Any

from localqueue.commits.effects import Effects
from localqueue.commits.flow import Flow
from localqueue.commits.home import Home
from localqueue.commits.kept_results import KeptResults
from localqueue.commits.ledger import Ledger
from localqueue.commits.local_atomic import NoEffects
from localqueue.commits.outbox import OutboxEffects
from localqueue.commits.protocol import Commit, OpensCommit
from localqueue.commits.saga import SagaEffects
from localqueue.commits.two_phase import TwoPhaseEffects
from localqueue.errors import ConfigurationError
from localqueue.policies.commit import (
    LOCAL_ATOMIC_COMMIT,
    CommitPolicy,
    LocalAtomicCommit,
    SagaCommit,
    TransactionalOutboxCommit,
    TwoPhaseCommit,
)
from localqueue.policies.resolved import trait
from localqueue.policies.results import NO_RESULT_POLICY
from localqueue.queue import PersistentQueue


def commit_for(queue: PersistentQueue[Any]) -> Commit | None:
    """What workers of this queue do around a success; None when there is nothing but the ack.

    Opens the queue's store. A commit policy with a method ``commit(queue)`` brings its own.
    """
    delivery = queue.delivery_policy
    if delivery.guarantee != "effectively-once":
        return None
    policy: CommitPolicy = trait(delivery, "commit_policy", LOCAL_ATOMIC_COMMIT)
    if isinstance(policy, OpensCommit):
        return policy.commit(queue)
    results = trait(delivery, "result_policy", NO_RESULT_POLICY)
    given = trait(delivery, "idempotency_store", None)
    if given is None and not results.stores_result and isinstance(policy, LocalAtomicCommit):
        return None
    home = Home.of(queue)
    ledger = None if given is None else Ledger(given, home)
    kept = KeptResults(results, home, with_ledger=ledger is not None)
    return Flow(home, ledger, kept, _effects(policy, home, keyed=ledger is not None))


def _effects(policy: CommitPolicy, home: Home, *, keyed: bool) -> Effects:
    match policy:
        case LocalAtomicCommit():
            return NoEffects()
        case TransactionalOutboxCommit():
            return OutboxEffects(policy, home, keyed=keyed)
        case TwoPhaseCommit():
            return TwoPhaseEffects(policy, home)
        case SagaCommit():
            return SagaEffects(policy, home, keyed=keyed)
    raise ConfigurationError(
        f"{type(policy).__name__} (mode {policy.mode!r}) names a way to commit, but cannot do it;"
        " give it a method commit(queue) that returns a Commit, or use a policy of the library"
    )
