"""What a decorated function was asked for: from its queue, a configuration and the decorator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from localqueue.checks import check_key
from localqueue.errors import ConfigurationError, WrongType
from localqueue.policies.notification import (
    NO_NOTIFICATION,
    AwaitableNotification,
    NotificationPolicy,
    WaitableNotification,
)
from localqueue.queue import PersistentQueue
from localqueue.resilience.circuit_breaker import CircuitBreaker
from localqueue.resilience.rate_limiter import RateLimit
from localqueue.retry.protocol import AttemptStore
from localqueue.retry.sqlite import SQLiteAttemptStore
from localqueue.rule import DEFAULT_BACKOFF, Backoff, FailurePolicy
from localqueue.worker_config import PersistentWorkerConfig

AT_ONCE = Backoff(first=0.0, jitter=0.0)
"""Tenacity has waited already, inside the lease."""


_OF_WORKER = frozenset(
    {
        "backoff",
        "block",
        "circuit_breaker",
        "concurrency",
        "drain_timeout",
        "kind",
        "max_tasks_per_child",
        "on_progress",
        "prefetch",
        "timeout",
        "until_empty",
    }
)
"""Sought here by those who have the other kind of worker in mind."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Every option, decided."""

    worker_id: str | None
    notification: Any
    """Can be waited for, or is NO_NOTIFICATION."""
    attempt_store: AttemptStore | None
    """The user's own; None leaves it to the queue's store."""
    retry: Mapping[str, Any]
    """For the persistent retry, without its store and key."""
    final: FailurePolicy
    """For what ended the tries inside the lease."""
    again: FailurePolicy
    """For a handler that asks to be called later, and for what failed around it: Tenacity has not
    waited, and knows whether there is another time."""
    min_interval: float
    rate_limit: RateLimit | None
    circuit_breaker: CircuitBreaker | None


def resolve_options(
    queue: PersistentQueue[Any],
    config: PersistentWorkerConfig | None,
    worker_id: str | None,
    given: Mapping[str, Any],
) -> WorkerOptions:
    """The queue's retry defaults, then the configuration, then what the decorator was given.

    Without a configuration that of the queue's spec is used. Raises where something cannot be
    meant; nothing is opened.
    """
    if not isinstance(queue, PersistentQueue):
        raise WrongType(f"a worker serves a PersistentQueue, not {type(queue).__name__}")
    if config is not None and not isinstance(config, PersistentWorkerConfig):
        raise WrongType(f"config must be a PersistentWorkerConfig, not {type(config).__name__}")
    if worker_id is not None:
        check_key("worker_id", worker_id)
    chosen: PersistentWorkerConfig = queue.build_worker_config() if config is None else config
    merged = PersistentWorkerConfig(**queue.retry_defaults)
    merged = merged.with_overrides(**chosen.options())
    merged = merged.with_overrides(**{name: v for name, v in given.items() if v is not None})
    retry = dict(merged.retry_kwargs)
    notification = _checked_notification(retry.pop("notification_policy", None) or queue)
    rate_limit = retry.pop("rate_limit", None)
    if rate_limit is not None and not isinstance(rate_limit, RateLimit):
        raise WrongType(f"rate_limit must be a RateLimit, not {type(rate_limit).__name__}")
    for name in _OF_WORKER & retry.keys():
        raise WrongType(
            f"a decorated worker takes no {name}=; Worker of localqueue.workers does, and"
            " Worker(queue, handler).run(until_empty=True) handles what is there and returns"
        )
    for name in ("key", "key_fn"):
        if name in retry:
            raise ConfigurationError(f"a worker takes no {name}=: its retry key is the message id")
    final = FailurePolicy(
        max_tries=1,
        backoff=AT_ONCE,
        dead_letter_on_failure=merged.dead_letter_on_failure,
        release_delay=merged.release_delay,
    )
    return WorkerOptions(
        worker_id=worker_id,
        notification=notification,
        attempt_store=_attempt_store(retry),
        retry=retry,
        final=final,
        again=replace(final, max_tries=None, backoff=DEFAULT_BACKOFF),
        min_interval=merged.min_interval,
        rate_limit=rate_limit,
        circuit_breaker=(
            CircuitBreaker(merged.circuit_breaker_failures, merged.circuit_breaker_cooldown)
            if merged.circuit_breaker_failures
            else None
        ),
    )


def _checked_notification(given: Any) -> Any:
    if isinstance(given, PersistentQueue):
        policy: NotificationPolicy = given.notification_policy
        can_be_waited_for = isinstance(policy, (WaitableNotification, AwaitableNotification))
        return policy if can_be_waited_for else NO_NOTIFICATION
    if given == NO_NOTIFICATION:
        return NO_NOTIFICATION
    if not isinstance(given, (WaitableNotification, AwaitableNotification)):
        raise ConfigurationError(
            f"{type(given).__name__} cannot be waited for; use InProcessNotification() or"
            " AsyncNotification() as notification_policy of a worker"
        )
    return given


def _attempt_store(retry: dict[str, Any]) -> AttemptStore | None:
    store, path = retry.pop("store", None), retry.pop("store_path", None)
    if store is not None and path is not None:
        raise ConfigurationError("pass either store= or store_path=, not both")
    if path is not None:
        return SQLiteAttemptStore(path)
    given: AttemptStore | None = store
    return given
