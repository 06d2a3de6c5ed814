"""Which combinations mislead: one table of rules, with a sentence each that says what to do.

``RULES`` is the table. A rule looks at a queue when it is built (``built``), at a single call
(``used``), or at both. Its verdict says what happens:

- refuse: building the queue raises;
- warn: building the queue warns, and it works as the sentence says;
- fail-at-use: the call that would mislead raises; where it is known when the queue is built, that
  warns already.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from localqueue.errors import (
    CompatibilityWarning,
    ConfigurationError,
    InvalidMessage,
    LocalQueueError,
)
from localqueue.policies.resolved import ResolvedPolicies, trait
from localqueue.stores.protocol import Atomicity, StoreCapabilities
from localqueue.stores.settings import DEFAULT_SETTINGS, QueueSettings


class Verdict(StrEnum):
    """What becomes of a combination that a rule finds."""

    REFUSE = "refuse"
    WARN = "warn"
    FAIL_AT_USE = "fail-at-use"


@dataclass(frozen=True, slots=True)
class Use:
    """One call on a queue, as far as rules look at it."""

    call: str = "put"
    settings: QueueSettings = DEFAULT_SETTINGS
    """The settings in force: they may be another process's."""
    priority: int = 0
    ordering_key: str | None = None
    dedupe_key: str | None = None
    delay: float = 0.0
    start: str = "now"
    """Where a new subscriber begins."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that applies, and what it says."""

    rule: str
    verdict: Verdict
    sentence: str


def _never_built(queue: ResolvedPolicies, store: StoreCapabilities) -> bool:
    return False


def _never_used(queue: ResolvedPolicies, use: Use) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Rule:
    """A combination that misleads."""

    name: str
    combination: str
    verdict: Verdict
    sentence: str
    built: Callable[[ResolvedPolicies, StoreCapabilities], bool] = _never_built
    used: Callable[[ResolvedPolicies, Use], bool] = _never_used
    error: type[LocalQueueError] = ConfigurationError
    """What a call raises that this rule finds."""


def _delivers(queue: ResolvedPolicies, guarantee: str) -> bool:
    return queue.delivery_policy.guarantee == guarantee


def _in_force(queue: ResolvedPolicies) -> QueueSettings:
    """The settings that this queue alone would give a store."""
    return DEFAULT_SETTINGS.changed(queue.explicit_settings)


def _calls_handlers_without_lease(queue: ResolvedPolicies) -> bool:
    dispatch = queue.dispatch_policy
    return dispatch.dispatches_on_put and not trait(dispatch, "runs_under_lease", False)


def _has_ledger(queue: ResolvedPolicies) -> bool:
    return trait(queue.delivery_policy, "idempotency_store", None) is not None


def _loses_accepted_messages(queue: ResolvedPolicies) -> bool:
    settings = _in_force(queue)
    return settings.overflow in ("drop-newest", "drop-oldest") or (
        settings.ttl is not None and settings.on_expiry == "drop"
    )


def _makes_dead_letters(queue: ResolvedPolicies) -> bool:
    settings = _in_force(queue)
    return (
        (settings.overflow == "overflow" and settings.overflow_to is None)
        or (settings.ttl is not None and settings.on_expiry == "dead-letter")
        or "crash_limit_policy" in queue.given
    )


def _needs_transactions(queue: ResolvedPolicies) -> bool:
    settings = _in_force(queue)
    return (
        settings.overflow == "drop-oldest"
        or settings.ttl is not None
        or settings.ordering == "per-key"
        or settings.journal_payloads
        or settings.crash_limit != DEFAULT_SETTINGS.crash_limit
        or queue.dedupe_window > 0
        or queue.codec_policy.id != "json"
    )


RULES: tuple[Rule, ...] = (
    # Calls are checked in this order: keys, order, topics.
    # --- deduplication ------------------------------------------------------------------------
    Rule(
        "dedupe-key-refused",
        "put(dedupe_key=...) with NoDeduplication",
        Verdict.FAIL_AT_USE,
        "this queue does not accept a dedupe_key: use deduplication_policy=DedupeKeySupport()",
        used=lambda queue, use: (
            use.dedupe_key is not None and not queue.deduplication_policy.accepts_dedupe_key
        ),
        error=InvalidMessage,
    ),
    Rule(
        "dedupe-key-missing",
        "put without dedupe_key under EffectivelyOnceDelivery",
        Verdict.FAIL_AT_USE,
        "this delivery policy requires a dedupe_key: pass put(..., dedupe_key=...)",
        used=lambda queue, use: (
            use.call == "put" and use.dedupe_key is None and queue.requires_dedupe_key
        ),
        error=InvalidMessage,
    ),
    Rule(
        "key-required-but-refused",
        "EffectivelyOnceDelivery with NoDeduplication",
        Verdict.REFUSE,
        "no put could succeed, because the delivery policy requires a dedupe_key and the "
        "deduplication policy refuses it: use DedupeKeySupport()",
        built=lambda queue, store: (
            queue.requires_dedupe_key and not queue.deduplication_policy.accepts_dedupe_key
        ),
    ),
    # --- order --------------------------------------------------------------------------------
    Rule(
        "priority-without-ordering",
        "put(priority=...) without PriorityOrdering",
        Verdict.FAIL_AT_USE,
        "priority requires PriorityOrdering: add ordering_policy=PriorityOrdering()",
        used=lambda queue, use: use.priority > 0 and use.settings.ordering != "priority",
        error=InvalidMessage,
    ),
    Rule(
        "key-without-ordering",
        "put(ordering_key=...) without OrderingKeys",
        Verdict.FAIL_AT_USE,
        "ordering_key requires OrderingKeys: add ordering_policy=OrderingKeys()",
        used=lambda queue, use: use.ordering_key is not None and use.settings.ordering != "per-key",
        error=InvalidMessage,
    ),
    Rule(
        "priority-on-an-unordered-store",
        "PriorityOrdering on a store that keeps no order",
        Verdict.WARN,
        "this store declares no order, so priorities are only a wish: use a store whose "
        "capabilities say ordered, or BestEffortOrdering()",
        built=lambda queue, store: _in_force(queue).ordering == "priority" and not store.ordered,
    ),
    Rule(
        "keys-on-an-unordered-store",
        "OrderingKeys on a store that keeps no order",
        Verdict.REFUSE,
        "this store declares no order, so it cannot hold a key's messages in theirs; use a "
        "store whose capabilities say ordered",
        built=lambda queue, store: _in_force(queue).ordering == "per-key" and not store.ordered,
    ),
    # --- topics -------------------------------------------------------------------------------
    Rule(
        "topic-without-subscribers",
        "PublishSubscribeRouting without subscribers",
        Verdict.FAIL_AT_USE,
        "publish-subscribe routing requires configured subscribers: add "
        "subscription_policy=StaticFanoutSubscriptions([...]) or DynamicFanoutSubscriptions()",
        built=lambda queue, store: (
            queue.routing_policy.fanout and not queue.subscription_policy.subscriptions
        ),
        used=lambda queue, use: (
            use.call == "put"
            and queue.routing_policy.fanout
            and not queue.subscription_policy.subscriptions
        ),
    ),
    Rule(
        "subscribers-without-topic",
        "subscribers without PublishSubscribeRouting",
        Verdict.WARN,
        "the subscribers get nothing, because messages stay in the queue itself: add "
        "routing_policy=PublishSubscribeRouting(), or leave the subscription policy out",
        built=lambda queue, store: (
            queue.subscription_policy.subscriptions and not queue.routing_policy.fanout
        ),
    ),
    Rule(
        "cursor-with-another-order",
        'PublishSubscribeRouting("cursor") with PriorityOrdering or OrderingKeys',
        Verdict.REFUSE,
        "cursor fan-out delivers in publication order; use hybrid or copy",
        built=lambda queue, store: (
            _in_force(queue).fanout == "cursor"
            and _in_force(queue).ordering in ("priority", "per-key")
        ),
    ),
    Rule(
        "shared-body-with-uneven-capacity",
        'fan-out "cursor" or "hybrid" with DropNewestBackpressure or OverflowBackpressure',
        Verdict.REFUSE,
        "a subscriber whose messages are positions in a shared log cannot leave out a single "
        'one; use PublishSubscribeRouting("copy")',
        built=lambda queue, store: (
            _in_force(queue).fanout in ("cursor", "hybrid")
            and _in_force(queue).overflow in ("drop-newest", "overflow")
        ),
    ),
    Rule(
        "topic-without-transactions",
        "PublishSubscribeRouting on a store without transactions",
        Verdict.REFUSE,
        "this store has no transactions, so a crash could leave some subscribers without their "
        "message: use a store whose capabilities name one, such as SQLiteQueueStore",
        built=lambda queue, store: (
            queue.routing_policy.fanout and store.transactional is Atomicity.NONE
        ),
    ),
    Rule(
        "delay-with-cursor",
        'put(delay=...) on a topic with fan-out "cursor"',
        Verdict.FAIL_AT_USE,
        "cursor fan-out delivers in publication order and takes no delay; use hybrid or copy",
        used=lambda queue, use: use.delay > 0 and use.settings.fanout == "cursor",
        error=InvalidMessage,
    ),
    Rule(
        "earlier-start-without-payloads",
        "subscribe() with a start before now, while the journal keeps no payloads",
        Verdict.FAIL_AT_USE,
        "a subscriber can start before now only where payloads are kept: add "
        "journal_policy=Journal(payloads=True), or use start='now'",
        used=lambda queue, use: (
            use.call == "subscribe" and use.start != "now" and not use.settings.journal_payloads
        ),
    ),
    # --- who is called, and when --------------------------------------------------------------
    Rule(
        "push-reaches-nobody",
        "PushConsumption without a dispatch or notification policy",
        Verdict.WARN,
        "push consumption without a dispatch or notification policy calls nobody: add "
        "dispatch_policy=CallbackDispatcher([...]) or a notification_policy, or use "
        "PullConsumption()",
        built=lambda queue, store: (
            queue.consumption_policy.pattern == "push"
            and not queue.dispatch_policy.dispatches_on_put
            and not queue.notification_policy.notifies_on_put
        ),
    ),
    Rule(
        "dispatch-beside-pull",
        "a dispatcher that calls handlers on put, with PullConsumption given as well",
        Verdict.WARN,
        "handlers are called on put and the message still waits to be pulled, so it is seen "
        "twice unless the handler acknowledges it: use PushConsumption(), or leave the dispatch "
        "policy out",
        built=lambda queue, store: (
            _calls_handlers_without_lease(queue)
            and "consumption_policy" in queue.given
            and queue.consumption_policy.pattern == "pull"
        ),
    ),
    Rule(
        "dispatch-before-at-most-once",
        "AtMostOnceDelivery with a dispatcher that calls handlers on put",
        Verdict.WARN,
        "the handler is called on put while the message stays stored, and a get() hands it out "
        "again: acknowledge it in the handler, or use AtLeastOnceDelivery()",
        built=lambda queue, store: (
            queue.removes_before_delivery and _calls_handlers_without_lease(queue)
        ),
    ),
    Rule(
        "dispatch-beside-the-ledger",
        "EffectivelyOnceDelivery with a dispatcher that calls handlers on put",
        Verdict.WARN,
        "handlers that are called on put run outside the idempotency ledger and may repeat an "
        "effect: let workers process the queue and wake them with a notification_policy",
        built=lambda queue, store: (
            _delivers(queue, "effectively-once") and _calls_handlers_without_lease(queue)
        ),
    ),
    # --- delivery -----------------------------------------------------------------------------
    Rule(
        "effectively-once-without-ledger",
        "EffectivelyOnceDelivery without idempotency_store",
        Verdict.WARN,
        "effectively-once without idempotency_store= only requires keys: a repeated delivery "
        "runs the handler again; attach a store such as SQLiteIdempotencyStore",
        built=lambda queue, store: _delivers(queue, "effectively-once") and not _has_ledger(queue),
    ),
    Rule(
        "effectively-once-that-forgets",
        "EffectivelyOnceDelivery on a store that does not survive a restart",
        Verdict.WARN,
        "this store is gone with its process, and with it the messages and what a commit policy "
        "keeps in it: use a store that survives a restart, such as SQLiteQueueStore",
        built=lambda queue, store: (
            _delivers(queue, "effectively-once") and not store.survives_restart
        ),
    ),
    Rule(
        "effectively-once-that-drops",
        "EffectivelyOnceDelivery with dropping backpressure or MessageTTL(on_expiry='drop')",
        Verdict.WARN,
        "a message may be dropped before it took effect: use BoundedBackpressure or "
        "OverflowBackpressure, and MessageTTL(..., on_expiry='dead-letter')",
        built=lambda queue, store: (
            _delivers(queue, "effectively-once") and _loses_accepted_messages(queue)
        ),
    ),
    Rule(
        "dead-letters-after-at-most-once",
        "AtMostOnceDelivery with a dead-letter policy given as well",
        Verdict.WARN,
        "at-most-once removes a message before its handler runs, so a failing handler leaves no "
        "dead letter: use AtLeastOnceDelivery(), or leave the dead-letter policy out",
        built=lambda queue, store: (
            queue.removes_before_delivery
            and "dead_letter_policy" in queue.given
            and queue.dead_letter_policy.dead_letters
        ),
    ),
    Rule(
        "lease-after-at-most-once",
        "AtMostOnceDelivery with a lease policy given as well",
        Verdict.WARN,
        "at-most-once removes a message as it is handed out, so there is no lease to time out: "
        "use AtLeastOnceDelivery(), or leave the lease policy out",
        built=lambda queue, store: queue.removes_before_delivery and "lease_policy" in queue.given,
    ),
    Rule(
        "crash-limit-after-at-most-once",
        "AtMostOnceDelivery with CrashLimit",
        Verdict.REFUSE,
        "at-most-once removes a message before its handler runs, so no crash can be counted: "
        "leave crash_limit_policy out, or use AtLeastOnceDelivery()",
        built=lambda queue, store: (
            queue.removes_before_delivery and "crash_limit_policy" in queue.given
        ),
    ),
    Rule(
        "dead-letters-needed",
        "a policy that makes dead letters, with a dead-letter policy that keeps none",
        Verdict.REFUSE,
        "OverflowBackpressure without a queue name, MessageTTL(on_expiry='dead-letter') and "
        "CrashLimit need dead letters: use dead_letter_policy=DeadLetterQueue()",
        built=lambda queue, store: (
            not queue.dead_letter_policy.dead_letters and _makes_dead_letters(queue)
        ),
    ),
    Rule(
        "overflow-into-itself",
        "OverflowBackpressure(to=...) with the queue's own name",
        Verdict.REFUSE,
        "a full queue cannot overflow into itself: name another queue, or leave to= out for the "
        "dead letters",
        built=lambda queue, store: _in_force(queue).overflow_to == queue.name,
    ),
    # --- where the state is -------------------------------------------------------------------
    Rule(
        "remote-placement-of-a-local-store",
        "RemoteQueuePlacement on a store that hosts do not share",
        Verdict.WARN,
        "RemoteQueuePlacement only names a boundary: this store is not shared between hosts; "
        "pass a remote store=, or use LocalQueuePlacement()",
        built=lambda queue, store: (
            queue.locality_policy.locality == "remote" and not store.shared_between_hosts
        ),
    ),
    Rule(
        "local-placement-of-a-shared-store",
        "LocalQueuePlacement given with a store that hosts share",
        Verdict.WARN,
        "this store is shared between hosts, and every call crosses a network: use "
        "RemoteQueuePlacement(), or leave the locality policy out",
        built=lambda queue, store: (
            "locality_policy" in queue.given
            and queue.locality_policy.locality == "local"
            and store.shared_between_hosts
        ),
    ),
    Rule(
        "policy-beyond-the-store",
        "MessageTTL, CrashLimit, DropOldestBackpressure, OrderingKeys, Journal(payloads=True), "
        "BytesCodec or a dedupe window on a store without transactions",
        Verdict.REFUSE,
        "this store has no transactions and cannot expire messages, count crashes, drop the "
        "oldest, hold messages behind a key, keep payloads or keys of messages that are gone, or "
        "keep bytes: leave these policies out, or use a store such as SQLiteQueueStore",
        built=lambda queue, store: (
            store.transactional is Atomicity.NONE and _needs_transactions(queue)
        ),
    ),
)

_USE_RULES = tuple(rule for rule in RULES if rule.used is not _never_used)


def check(queue: ResolvedPolicies, store: StoreCapabilities) -> list[Finding]:
    """What the rules say about a queue that is being built, in the order of the table."""
    return [
        Finding(rule.name, rule.verdict, rule.sentence)
        for rule in RULES
        if rule.built(queue, store)
    ]


def enforce(queue: ResolvedPolicies, store: StoreCapabilities, *, stacklevel: int = 3) -> None:
    """Raise ConfigurationError for what is refused, else warn about each other finding.

    ``stacklevel`` counts as in ``warnings.warn``: 3 is the caller of whoever calls this.
    """
    findings = check(queue, store)
    refused = [found.sentence for found in findings if found.verdict is Verdict.REFUSE]
    if refused:
        raise ConfigurationError("\n".join(refused))
    for found in findings:
        warnings.warn(found.sentence, CompatibilityWarning, stacklevel=stacklevel)


def check_use(queue: ResolvedPolicies, use: Use) -> None:
    """Raise for the first rule that this call breaks; nothing was changed then."""
    for rule in _USE_RULES:
        if rule.used(queue, use):
            raise rule.error(rule.sentence)


def as_markdown() -> str:
    """The table as it is printed in ``docs/compatibility.md``."""
    lines = ["| combination | verdict | what to do |", "|---|---|---|"]
    lines += [f"| {rule.combination} | {rule.verdict} | {rule.sentence} |" for rule in RULES]
    return "\n".join(lines) + "\n"
