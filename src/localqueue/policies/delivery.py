"""How often a message may be delivered, and when it is acknowledged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.policies.commit import LOCAL_ATOMIC_COMMIT, CommitPolicy
from localqueue.policies.results import NO_RESULT_POLICY, ResultPolicy, class_name


class DeliveryPolicy(Protocol):
    """Names the promise about deliveries. Objects without ``requires_dedupe_key`` require none."""

    @property
    def guarantee(self) -> str: ...

    @property
    def ack_timing(self) -> str:
        """``"after-success"``, or ``"before-delivery"``: removed as it is handed out."""

    @property
    def uses_leases(self) -> bool: ...

    @property
    def redelivers_expired_leases(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class AtLeastOnceDelivery:
    """Leased, handled, acknowledged; delivered again when the lease ends before that."""

    guarantee: ClassVar[str] = "at-least-once"
    ack_timing: ClassVar[str] = "after-success"
    uses_leases: ClassVar[bool] = True
    redelivers_expired_leases: ClassVar[bool] = True
    requires_dedupe_key: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return _described(self)


@dataclass(frozen=True, slots=True)
class AtMostOnceDelivery:
    """Removed before it is handed out: a crash or a failing handler loses it."""

    guarantee: ClassVar[str] = "at-most-once"
    ack_timing: ClassVar[str] = "before-delivery"
    uses_leases: ClassVar[bool] = False
    redelivers_expired_leases: ClassVar[bool] = False
    requires_dedupe_key: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return _described(self)


@dataclass(frozen=True, slots=True)
class EffectivelyOnceDelivery:
    """Delivered at least once under a key that every put must carry; the ledger skips repeats.

    Without ``idempotency_store`` only the key is enforced and repeats are not recognised.
    """

    idempotency_store: Any = None
    result_policy: ResultPolicy = NO_RESULT_POLICY
    commit_policy: CommitPolicy = LOCAL_ATOMIC_COMMIT
    guarantee: ClassVar[str] = "effectively-once"
    ack_timing: ClassVar[str] = "after-success"
    uses_leases: ClassVar[bool] = True
    redelivers_expired_leases: ClassVar[bool] = True
    requires_dedupe_key: ClassVar[bool] = True

    def as_dict(self) -> dict[str, Any]:
        return _described(self) | {
            "requires_dedupe_key": self.requires_dedupe_key,
            "idempotency_store": class_name(self.idempotency_store),
            "result_policy": self.result_policy.as_dict(),
            "commit_policy": self.commit_policy.as_dict(),
        }


def _described(policy: DeliveryPolicy) -> dict[str, Any]:
    return {
        "guarantee": policy.guarantee,
        "ack_timing": policy.ack_timing,
        "uses_leases": policy.uses_leases,
        "redelivers_expired_leases": policy.redelivers_expired_leases,
    }


AT_LEAST_ONCE_DELIVERY = AtLeastOnceDelivery()
