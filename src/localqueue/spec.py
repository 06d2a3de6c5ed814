"""A queue and its workers described step by step, and built from the description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from localqueue.checks import check_count, check_queue_name, check_seconds
from localqueue.errors import ConfigurationError, InvalidArgument, WrongType
from localqueue.policies.commit import LOCAL_ATOMIC_COMMIT, CommitPolicy
from localqueue.policies.dead_letters import DEAD_LETTER_QUEUE, DeadLetterPolicy
from localqueue.policies.delivery import (
    AT_LEAST_ONCE_DELIVERY,
    AtMostOnceDelivery,
    DeliveryPolicy,
    EffectivelyOnceDelivery,
)
from localqueue.policies.policy_set import QueuePolicySet
from localqueue.policies.results import NO_RESULT_POLICY, ResultPolicy
from localqueue.policies.retry_defaults import check_retry_defaults
from localqueue.queue import PersistentQueue
from localqueue.worker_config import PersistentWorkerConfig

DEFAULT_COOLDOWN = 30.0

_WORKER_OPTIONS = frozenset(
    (
        "dead_letter_on_failure",
        "dead_letter_on_exhaustion",
        "release_delay",
        "min_interval",
        "circuit_breaker_failures",
        "circuit_breaker_cooldown",
    )
)


class QoS(StrEnum):
    """How often a message may take effect."""

    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"
    EFFECTIVELY_ONCE = "effectively-once"


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """Describes a queue and its workers. Each ``with_`` method returns a new spec."""

    name: str
    delivery_policy: DeliveryPolicy | None = field(default=None, kw_only=True)
    dead_letter_policy: DeadLetterPolicy | None = field(default=None, kw_only=True)
    retry: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    worker: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """The options of PersistentWorkerConfig that were chosen, without the retry options."""

    def __post_init__(self) -> None:
        check_queue_name(self.name)
        retry = check_retry_defaults(self.retry, what="the retry options")
        # Whatever the worker would refuse is refused here, where it was written.
        PersistentWorkerConfig(**self.worker)
        for option in retry.keys() & _WORKER_OPTIONS:
            raise ConfigurationError(
                f"{option} is not a retry option; the spec has a method for it"
            )
        object.__setattr__(self, "retry", retry)
        object.__setattr__(self, "worker", dict(self.worker))

    # --- describing ---------------------------------------------------------------------------
    def with_name(self, name: str) -> QueueSpec:
        return replace(self, name=name)

    def with_qos(
        self,
        qos: QoS | str,
        *,
        idempotency_store: Any = None,
        result_policy: ResultPolicy = NO_RESULT_POLICY,
        commit_policy: CommitPolicy = LOCAL_ATOMIC_COMMIT,
    ) -> QueueSpec:
        """Choose the delivery; ledger, results and commit belong to effectively-once only."""
        chosen = _qos(qos)
        if chosen is QoS.EFFECTIVELY_ONCE:
            delivery: DeliveryPolicy = EffectivelyOnceDelivery(
                idempotency_store=idempotency_store,
                result_policy=result_policy,
                commit_policy=commit_policy,
            )
            return replace(self, delivery_policy=delivery)
        if (
            idempotency_store is not None
            or result_policy != NO_RESULT_POLICY
            or commit_policy != LOCAL_ATOMIC_COMMIT
        ):
            raise ConfigurationError(
                "idempotency_store, result_policy and commit_policy need QoS.EFFECTIVELY_ONCE,"
                f" not {chosen}"
            )
        at_least_once = chosen is QoS.AT_LEAST_ONCE
        delivery = AT_LEAST_ONCE_DELIVERY if at_least_once else AtMostOnceDelivery()
        return replace(self, delivery_policy=delivery)

    def with_dead_letter_queue(self, policy: DeadLetterPolicy = DEAD_LETTER_QUEUE) -> QueueSpec:
        return replace(self, dead_letter_policy=policy)

    def with_dead_letter_on_failure(self, enabled: bool = True) -> QueueSpec:
        return self._with_worker(dead_letter_on_failure=enabled)

    def with_retry(self, *, max_retries: int | None = None, **options: Any) -> QueueSpec:
        """Retry options for the queue and its workers, added to those of earlier calls.

        ``max_retries`` is another name of ``max_tries``.
        """
        if max_retries is not None:
            if options.get("max_tries") is not None:
                raise ConfigurationError("pass either max_retries= or max_tries=, not both")
            options["max_tries"] = max_retries
        return replace(self, retry={**self.retry, **options})

    def with_circuit_breaker(self, *, threshold: int, cooldown: float | None = None) -> QueueSpec:
        """Pause for ``cooldown`` seconds (30) after ``threshold`` failures in a row; 0 is never."""
        check_count("threshold", threshold)
        seconds = check_seconds("cooldown", DEFAULT_COOLDOWN if cooldown is None else cooldown)
        return self._with_worker(
            circuit_breaker_failures=threshold,
            circuit_breaker_cooldown=seconds if threshold else 0.0,
        )

    def with_release_delay(self, delay: float) -> QueueSpec:
        return self._with_worker(release_delay=delay)

    def with_min_interval(self, seconds: float) -> QueueSpec:
        return self._with_worker(min_interval=seconds)

    # --- what a queue reads ---------------------------------------------------------------------
    @property
    def policy_set(self) -> QueuePolicySet | None:
        """The policies that were chosen, or None when none was."""
        if self.delivery_policy is None and self.dead_letter_policy is None:
            return None
        return QueuePolicySet(
            delivery_policy=self.delivery_policy, dead_letter_policy=self.dead_letter_policy
        )

    @property
    def retry_kwargs(self) -> dict[str, Any]:
        """The retry options, as a dict of the caller's own."""
        return dict(self.retry)

    # --- building -------------------------------------------------------------------------------
    def build_queue(self, **options: Any) -> PersistentQueue[Any]:
        """A queue of this spec. Refuses options that would silently replace a part of it."""
        if options.get("spec") is not None:
            raise WrongType("build_queue() is called on a spec; it takes no other spec=")
        if options.get("policy_set") is not None and self.policy_set is not None:
            raise ConfigurationError("pass either policy_set= or the spec's policies, not both")
        if options.get("retry_defaults") is not None and self.retry:
            raise ConfigurationError("pass either retry_defaults= or the spec's retry, not both")
        return PersistentQueue(spec=self, **options)

    def build_worker_config(self, **overrides: Any) -> PersistentWorkerConfig:
        """The configuration of the workers, with some options changed."""
        return PersistentWorkerConfig(**self.worker, **self.retry).with_overrides(**overrides)

    def _with_worker(self, **options: Any) -> QueueSpec:
        return replace(self, worker={**self.worker, **options})


def _qos(given: QoS | str) -> QoS:
    try:
        return QoS(given)
    except ValueError:
        raise InvalidArgument(f"unknown QoS {given!r}; use one of {', '.join(QoS)}") from None
