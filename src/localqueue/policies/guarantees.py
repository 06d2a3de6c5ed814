"""What is promised, by delivery, store and policy: one table, printed in ``docs/guarantees.md``.

Every row says what may be relied on, when it fails, and what is left to the user.
``guarantees_of`` picks the rows that speak about one queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from localqueue.policies.resolved import ResolvedPolicies, trait
from localqueue.stores.protocol import Atomicity, StoreCapabilities


class Level(StrEnum):
    """How much a row promises."""

    DESCRIPTIVE = "descriptive"
    """A name for something; nothing acts on it."""
    LOCAL = "local"
    """Holds inside one process, while it lives."""
    BEST_EFFORT = "best-effort"
    """Usually so; what is lost is named."""
    AT_LEAST_ONCE = "at-least-once"
    """Nothing accepted is lost; something may happen twice."""
    EFFECTIVELY_ONCE = "effectively-once"
    """Nothing accepted is lost, and a repetition is recognised."""
    OUT_OF_SCOPE = "out of scope"
    """Not promised; the row says what to use instead."""


class StoreKind(StrEnum):
    """Stores, as far as promises differ between them."""

    MEMORY = "memory"
    HOST = "one host"
    SHARED = "shared between hosts"
    SIMPLE = "without transactions"


def store_kind(store: StoreCapabilities) -> StoreKind:
    """Which column of the matrix a store belongs to."""
    if store.transactional is Atomicity.NONE:
        return StoreKind.SIMPLE
    if store.shared_between_hosts:
        return StoreKind.SHARED
    return StoreKind.HOST if store.survives_restart else StoreKind.MEMORY


@dataclass(frozen=True, slots=True)
class DeliveryGuarantee:
    """What one delivery policy promises on one kind of store."""

    delivery: str
    store: StoreKind
    level: Level
    promise: str
    failure_window: str
    your_part: str
    with_ledger: bool | None = None
    """Whether this is about a queue with an idempotency store; None when it makes no difference."""


@dataclass(frozen=True, slots=True)
class PolicyGuarantee:
    """What a policy adds to the delivery, or does not."""

    subject: str
    level: Level
    promise: str
    failure_window: str
    your_part: str
    policies: tuple[str, ...]
    """The classes that it is about."""
    fanout_modes: tuple[str, ...] = ()
    """Of these modes only, when it is about a way of fan-out."""


@dataclass(frozen=True, slots=True)
class OutOfScope:
    """What is not promised, and what to use instead."""

    subject: str
    why: str
    instead: str


_KILLED_WORKER = "a worker that dies after its effect and before the ack: the message comes again"
_REPEATABLE = "make handlers repeatable"
_NO_CRASH_COPY = "everything between the removal and the end of the handler is lost in a crash"

DELIVERIES: tuple[DeliveryGuarantee, ...] = (
    DeliveryGuarantee(
        "at-least-once",
        StoreKind.MEMORY,
        Level.LOCAL,
        "every accepted message is delivered until it is settled, while the process lives",
        "the end of the process loses everything",
        "use it for tests and for work that can be lost",
    ),
    DeliveryGuarantee(
        "at-least-once",
        StoreKind.HOST,
        Level.AT_LEAST_ONCE,
        "a put that returned is on stable storage and is delivered until it is acknowledged, "
        "dead-lettered, expired or removed",
        _KILLED_WORKER,
        f"{_REPEATABLE}; keep the file on a local disk and back it up",
    ),
    DeliveryGuarantee(
        "at-least-once",
        StoreKind.SHARED,
        Level.AT_LEAST_ONCE,
        "as on one host, for every host that reaches the server; its clock decides about leases",
        f"{_KILLED_WORKER}; a lost connection leaves the outcome of a put unknown",
        f"{_REPEATABLE}; run the server durably; repeat an unknown put with the same request_id",
    ),
    DeliveryGuarantee(
        "at-least-once",
        StoreKind.SIMPLE,
        Level.BEST_EFFORT,
        "the verbs of the store, one after the other",
        "a crash between two verbs: part of a batch, part of a fan-out",
        "find out what your store keeps, and declare its capabilities",
    ),
    DeliveryGuarantee(
        "at-most-once",
        StoreKind.MEMORY,
        Level.BEST_EFFORT,
        "no message is handed out twice",
        f"{_NO_CRASH_COPY}, and so is what still waits",
        "use it where a repetition is worse than a loss",
    ),
    DeliveryGuarantee(
        "at-most-once",
        StoreKind.HOST,
        Level.BEST_EFFORT,
        "no message is handed out twice; what still waits survives a crash",
        _NO_CRASH_COPY,
        "use it where a repetition is worse than a loss",
    ),
    DeliveryGuarantee(
        "at-most-once",
        StoreKind.SHARED,
        Level.BEST_EFFORT,
        "no message is handed out twice; what still waits survives a crash of the host",
        f"{_NO_CRASH_COPY}; so is a message whose answer the network lost",
        "use it where a repetition is worse than a loss",
    ),
    DeliveryGuarantee(
        "at-most-once",
        StoreKind.SIMPLE,
        Level.BEST_EFFORT,
        "the message is acknowledged right after the store handed it out",
        f"{_NO_CRASH_COPY}; a crash between the two verbs delivers it again",
        "use a store with transactions where a repetition matters",
    ),
    DeliveryGuarantee(
        "effectively-once",
        StoreKind.MEMORY,
        Level.LOCAL,
        "one key takes effect once, while the process lives",
        "the end of the process loses messages and ledger",
        "use it for tests",
        with_ledger=True,
    ),
    DeliveryGuarantee(
        "effectively-once",
        StoreKind.HOST,
        Level.EFFECTIVELY_ONCE,
        "what succeeded under a key is not run again; ledger, result and ack are one transaction "
        "where they share the store",
        "a handler that dies after an effect outside the store and before the ledger says so",
        "choose stable keys; keep the ledger longer than producers may repeat; let outside "
        "systems see the key",
        with_ledger=True,
    ),
    DeliveryGuarantee(
        "effectively-once",
        StoreKind.SHARED,
        Level.EFFECTIVELY_ONCE,
        "as on one host, for all hosts that share ledger and store",
        "a handler that dies after an effect outside the store and before the ledger says so",
        "choose stable keys; keep the ledger on a server as durable as the queue's",
        with_ledger=True,
    ),
    DeliveryGuarantee(
        "effectively-once",
        StoreKind.SIMPLE,
        Level.AT_LEAST_ONCE,
        "the ledger is asked before each run and written before the ack",
        "a crash between effect and ledger repeats the effect",
        "use a store with transactions, or make handlers repeatable",
        with_ledger=True,
    ),
    *(
        DeliveryGuarantee(
            "effectively-once",
            kind,
            Level.DESCRIPTIVE,
            "every put carries a key; deliveries are those of at-least-once",
            "each repeated delivery runs the handler again",
            "attach idempotency_store=, or make handlers repeatable",
            with_ledger=False,
        )
        for kind in StoreKind
    ),
)

POLICIES: tuple[PolicyGuarantee, ...] = (
    PolicyGuarantee(
        "placement",
        Level.DESCRIPTIVE,
        "names where the state is; the store decides who shares it",
        "none",
        "choose the store",
        ("LocalQueuePlacement", "RemoteQueuePlacement"),
    ),
    PolicyGuarantee(
        "semantics",
        Level.DESCRIPTIVE,
        "says in eleven words what the policies do; it cannot disagree with them",
        "none",
        "nothing",
        ("QueueSemantics",),
    ),
    PolicyGuarantee(
        "lease",
        Level.AT_LEAST_ONCE,
        "a message has at most one current lease, and an outdated receipt changes nothing",
        "a handler that outlives its lease: another consumer gets the message meanwhile",
        "a timeout longer than a handler, or extend() while it runs",
        ("FixedLeaseTimeout",),
    ),
    PolicyGuarantee(
        "acknowledgement",
        Level.AT_LEAST_ONCE,
        "an acknowledged message is gone; the answer says whether this receipt did it",
        "a crash before the ack",
        "acknowledge after the effect, and look at the answer",
        ("ExplicitAcknowledgement",),
    ),
    PolicyGuarantee(
        "dead letters",
        Level.AT_LEAST_ONCE,
        "kept with error and history, oldest first, until requeued or pruned",
        "none in the store; nobody looks at them by themselves",
        "watch their number, requeue or prune them",
        ("DeadLetterQueue",),
    ),
    PolicyGuarantee(
        "dedupe key",
        Level.EFFECTIVELY_ONCE,
        "one key is one message while its record lives: until the message is gone, or longer "
        "with a window",
        "a repetition after that is a new message",
        "derive the key from the work, not from the attempt",
        ("DedupeKeySupport",),
    ),
    PolicyGuarantee(
        "no deduplication",
        Level.AT_LEAST_ONCE,
        "every put is a message of its own; a key is refused",
        "a producer that repeats a put makes a second message",
        "use request_id where an answer can be lost",
        ("NoDeduplication",),
    ),
    PolicyGuarantee(
        "no results",
        Level.DESCRIPTIVE,
        "results are not kept; a skipped repetition returns None",
        "none",
        "nothing",
        ("NoResultPolicy",),
    ),
    PolicyGuarantee(
        "stored results",
        Level.EFFECTIVELY_ONCE,
        "a skipped repetition returns what the first run returned",
        "a result store of its own is written before the ledger; a redelivery writes it again",
        "results that the store can keep; prune them",
        ("ReturnStoredResult",),
    ),
    PolicyGuarantee(
        "local commit",
        Level.EFFECTIVELY_ONCE,
        "result, ledger and ack become durable together where they share a store",
        "stores apart: a redelivery does the missing step before it acknowledges",
        "keep them in one store where you can",
        ("LocalAtomicCommit",),
    ),
    PolicyGuarantee(
        "outbox",
        Level.AT_LEAST_ONCE,
        "the envelope is durable together with the ack; no effect is forgotten",
        "a relay that dies after sending sends again",
        "give a relay, or run one; let receivers drop repetitions by key",
        ("TransactionalOutboxCommit",),
    ),
    PolicyGuarantee(
        "two-phase commit",
        Level.AT_LEAST_ONCE,
        "nobody commits before all have prepared; the decision is durable with the ack",
        "after a crash participants stay prepared until a worker recovers them",
        "participants that keep a prepared state and accept a repeated commit",
        ("TwoPhaseCommit",),
    ),
    PolicyGuarantee(
        "saga",
        Level.AT_LEAST_ONCE,
        "the steps before a failed one are compensated",
        "others see the effects of finished steps before the compensation",
        "steps and compensations that can be repeated",
        ("SagaCommit",),
    ),
    PolicyGuarantee(
        "pull",
        Level.AT_LEAST_ONCE,
        "consumers lease what is ready, each message to one of them at a time",
        "none beyond the lease",
        "run consumers",
        ("PullConsumption",),
    ),
    PolicyGuarantee(
        "push",
        Level.DESCRIPTIVE,
        "names the pattern; dispatch and notification policies carry it out",
        "without either of them nobody is called",
        "add one of them",
        ("PushConsumption",),
    ),
    PolicyGuarantee(
        "no dispatch",
        Level.DESCRIPTIVE,
        "a put stores and calls nobody",
        "none",
        "nothing",
        ("NoDispatcher",),
    ),
    PolicyGuarantee(
        "inline dispatch",
        Level.LOCAL,
        "handlers are called in the producer's thread, after the message is stored; their error "
        "reaches the producer",
        "a crash between put and handler: the message waits to be pulled",
        "settle the message in the handler; do not repeat the put because a handler failed",
        ("CallbackDispatcher",),
    ),
    PolicyGuarantee(
        "dispatch beside the producer",
        Level.AT_LEAST_ONCE,
        "handlers run under a lease in threads of this process; what fails is tried again",
        "a crash while a handler runs: the message is delivered again",
        "handlers that may run twice; see the handlers end with close()",
        ("ThreadedDispatcher", "WorkerPoolDispatcher"),
    ),
    PolicyGuarantee(
        "no notification",
        Level.DESCRIPTIVE,
        "a put is quiet; a blocking get() is woken by the store all the same",
        "none",
        "nothing",
        ("NoNotification",),
    ),
    PolicyGuarantee(
        "notification inside the process",
        Level.LOCAL,
        "listeners of this process hear of a message after it is stored",
        "puts of other processes are not heard; a hint can be lost or come twice, no data is",
        "wait with a timeout, then lease from the queue",
        ("CallbackNotification", "InProcessNotification", "AsyncNotification"),
    ),
    PolicyGuarantee(
        "one consumer per message",
        Level.AT_LEAST_ONCE,
        "consumers compete; each message has one owner at a time",
        "none beyond the lease",
        "nothing",
        ("PointToPointRouting",),
    ),
    PolicyGuarantee(
        "fan-out by copy",
        Level.AT_LEAST_ONCE,
        "all subscribers get their message or none does; each has its own leases, retries, keys "
        "and dead letters",
        "none on a store with transactions",
        "let every subscriber be served, or its queue grows",
        ("PublishSubscribeRouting",),
        ("copy",),
    ),
    PolicyGuarantee(
        "fan-out by cursor or hybrid",
        Level.AT_LEAST_ONCE,
        "one stored body and a position per subscriber; leases, retries and dead letters are "
        "each subscriber's own",
        "a body lives until the slowest subscriber has passed it",
        "unsubscribe whoever is gone",
        ("PublishSubscribeRouting",),
        ("cursor", "hybrid"),
    ),
    PolicyGuarantee(
        "no subscribers",
        Level.DESCRIPTIVE,
        "the queue serves its own consumers",
        "none",
        "nothing",
        ("NoSubscriptions",),
    ),
    PolicyGuarantee(
        "fixed subscribers",
        Level.AT_LEAST_ONCE,
        "every put reaches all of the list",
        "processes with different lists hand out to different subscribers",
        "give every producer the same list",
        ("StaticFanoutSubscriptions",),
    ),
    PolicyGuarantee(
        "subscribers that come and go",
        Level.AT_LEAST_ONCE,
        "the list is in the store, the same for every producer; a new one starts where it asks to",
        "a put while nobody subscribes is refused; a late subscriber misses what came before it",
        "subscribe before you publish, or keep payloads and start earlier",
        ("DynamicFanoutSubscriptions",),
    ),
    PolicyGuarantee(
        "order of becoming due",
        Level.BEST_EFFORT,
        "leases are given in that order",
        "consumers side by side finish in any order; a redelivery goes behind what is ready",
        "one consumer, or OrderingKeys, where order of effects matters",
        ("FifoReadyOrdering",),
    ),
    PolicyGuarantee(
        "priority",
        Level.BEST_EFFORT,
        "a due message of higher priority is leased before everything lower",
        "what is leased already is not interrupted; low ones wait while high ones keep coming",
        "use few levels, and watch the age of the oldest",
        ("PriorityOrdering",),
    ),
    PolicyGuarantee(
        "no order",
        Level.DESCRIPTIVE,
        "nothing is said about order",
        "none",
        "do not rely on any",
        ("BestEffortOrdering",),
    ),
    PolicyGuarantee(
        "order per key",
        Level.AT_LEAST_ONCE,
        "of one key one message at a time, in the order of the puts",
        "a head that fails holds its key until it succeeds or is dead-lettered; a handler that "
        "goes on after its timeout= or its lease may still run beside the next of its key",
        "choose keys that are many and even; let handlers end when they are told to, or run them "
        'with kind="process"',
        ("OrderingKeys",),
    ),
    PolicyGuarantee(
        "full: wait or refuse",
        Level.AT_LEAST_ONCE,
        "the capacity is exact; a put waits or raises queue.Full, and nothing is lost",
        "none",
        "handle queue.Full",
        ("BoundedBackpressure", "RejectingBackpressure"),
    ),
    PolicyGuarantee(
        "full: drop",
        Level.BEST_EFFORT,
        "the capacity is exact; the journal has an event for what was dropped",
        "loses the message being put, or the oldest ready one",
        "use it for values that newer ones replace",
        ("DropNewestBackpressure", "DropOldestBackpressure"),
    ),
    PolicyGuarantee(
        "full: slow down",
        Level.AT_LEAST_ONCE,
        "every message is stored; producers pause",
        "producers that stay faster make the queue grow beyond its size",
        "watch the backlog",
        ("ThrottlingBackpressure",),
    ),
    PolicyGuarantee(
        "full: overflow",
        Level.AT_LEAST_ONCE,
        "what does not fit is stored elsewhere, in the same transaction",
        "none; it is delivered only when somebody serves the other queue",
        "serve the overflow queue, or requeue the dead letters",
        ("OverflowBackpressure",),
    ),
    PolicyGuarantee(
        "no expiry",
        Level.AT_LEAST_ONCE,
        "messages wait as long as it takes",
        "none",
        "nothing",
        ("NoExpiry",),
    ),
    PolicyGuarantee(
        "expiry",
        Level.BEST_EFFORT,
        "a message that waited too long is not delivered; it is dropped or becomes a dead letter",
        "a lease taken just before the end is worked on after it",
        "use on_expiry='dead-letter' where a loss must be seen",
        ("MessageTTL",),
    ),
    PolicyGuarantee(
        "crash limit",
        Level.AT_LEAST_ONCE,
        "a message that keeps killing its workers becomes a dead letter",
        "a message is charged too when its worker is killed for another reason while running it",
        "look at the dead letters",
        ("CrashLimit",),
    ),
    PolicyGuarantee(
        "journal",
        Level.AT_LEAST_ONCE,
        "every transition is an event of the same transaction",
        "events older than the retention are gone unless a registered reader holds them",
        "read in time, or register a reader",
        ("Journal",),
    ),
    PolicyGuarantee(
        "codec",
        Level.AT_LEAST_ONCE,
        "a value comes back as it was put, as far as the codec can say it, or not at all: damage "
        "never reaches a handler",
        "a damaged message becomes a dead letter",
        "values that the codec can keep",
        ("JsonCodec", "BytesCodec"),
    ),
)

OUT_OF_SCOPE: tuple[OutOfScope, ...] = (
    OutOfScope(
        "exactly-once side effects",
        "no queue can know whether an effect outside it happened before a crash",
        "EffectivelyOnceDelivery with keys that the outside system sees, or an outbox",
    ),
    OutOfScope(
        "global first-in first-out with several consumers",
        "leases are given in order, but consumers finish in any",
        "OrderingKeys, or one consumer",
    ),
    OutOfScope(
        "queue files on network file systems",
        "their locks and syncs do not hold what they promise",
        "a local disk, or a server store",
    ),
    OutOfScope(
        "durability=relaxed and power loss",
        "puts of the last moments may be gone after a power cut; a crash of the process loses none",
        "durability=full, which is the default",
    ),
    OutOfScope(
        "consensus and clustering",
        "a queue is one store; nobody votes",
        "a PostgreSQL store with its own failover",
    ),
    OutOfScope(
        "replication across regions",
        "a store is in one place",
        "the replication of the server store, and a queue per region",
    ),
    OutOfScope(
        "protocols of other brokers (AMQP, MQTT, Kafka, SQS)",
        "the store contract is the only interface",
        "a small bridge that leases here and publishes there under the message id",
    ),
    OutOfScope(
        "schema registry",
        "values are what the codec can keep; nobody checks their shape",
        "a version in the headers, and typed values that the handler validates",
    ),
)


def guarantees_of(
    queue: ResolvedPolicies, store: StoreCapabilities
) -> list[DeliveryGuarantee | PolicyGuarantee]:
    """The rows that speak about this queue on this store: its delivery first."""
    return [_delivery_row(queue, store), *(row for row in POLICIES if _is_about(row, queue))]


def as_markdown() -> str:
    """The tables as they are printed in ``docs/guarantees.md``."""
    return "\n".join((*_matrix(), "", *_deliveries(), "", *_policies(), "", *_outside())) + "\n"


def _delivery_row(queue: ResolvedPolicies, store: StoreCapabilities) -> DeliveryGuarantee:
    delivery, kind = queue.delivery_policy, store_kind(store)
    ledger = trait(delivery, "idempotency_store", None) is not None
    for row in DELIVERIES:
        if (row.delivery, row.store) == (delivery.guarantee, kind) and row.with_ledger in (
            None,
            ledger,
        ):
            return row
    return DeliveryGuarantee(
        delivery.guarantee,
        kind,
        Level.DESCRIPTIVE,
        "a delivery policy of your own: what it promises is up to it",
        "unknown",
        "say what it promises",
    )


def _is_about(row: PolicyGuarantee, queue: ResolvedPolicies) -> bool:
    mode = trait(queue.routing_policy, "fanout_mode", "copy")
    return not _class_names(queue).isdisjoint(row.policies) and (
        not row.fanout_modes or mode in row.fanout_modes
    )


def _class_names(queue: ResolvedPolicies) -> set[str]:
    policies = [
        queue.semantics,
        queue.locality_policy,
        queue.lease_policy,
        queue.acknowledgement_policy,
        queue.dead_letter_policy,
        queue.deduplication_policy,
        queue.consumption_policy,
        queue.dispatch_policy,
        queue.notification_policy,
        queue.ordering_policy,
        queue.routing_policy,
        queue.subscription_policy,
        queue.backpressure,
        queue.expiry_policy,
        queue.crash_limit_policy,
        queue.journal_policy,
        queue.codec_policy,
        trait(queue.delivery_policy, "result_policy", None),
        trait(queue.delivery_policy, "commit_policy", None),
    ]
    return {type(policy).__name__ for policy in policies}


def _matrix() -> list[str]:
    kinds = list(StoreKind)
    lines = [
        "| delivery | " + " | ".join(kinds) + " |",
        "|---|" + "---|" * len(kinds),
    ]
    names = dict.fromkeys((row.delivery, row.with_ledger) for row in DELIVERIES)
    for delivery, ledger in names:
        cells = [
            row.level
            for kind in kinds
            for row in DELIVERIES
            if (row.delivery, row.with_ledger, row.store) == (delivery, ledger, kind)
        ]
        lines.append(f"| {_delivery_name(delivery, ledger)} | " + " | ".join(cells) + " |")
    return lines


def _deliveries() -> list[str]:
    return [
        "| delivery | store | level | promise | failure window | your part |",
        "|---|---|---|---|---|---|",
        *(
            f"| {_delivery_name(row.delivery, row.with_ledger)} | {row.store} | {row.level}"
            f" | {row.promise} | {row.failure_window} | {row.your_part} |"
            for row in DELIVERIES
        ),
    ]


def _policies() -> list[str]:
    return [
        "| subject | policies | level | promise | failure window | your part |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.subject} | {_codes(row.policies)} | {row.level} | {row.promise}"
            f" | {row.failure_window} | {row.your_part} |"
            for row in POLICIES
        ),
    ]


def _outside() -> list[str]:
    return [
        f"| {Level.OUT_OF_SCOPE} today | why | instead |",
        "|---|---|---|",
        *(f"| {row.subject} | {row.why} | {row.instead} |" for row in OUT_OF_SCOPE),
    ]


def _delivery_name(delivery: str, ledger: bool | None) -> str:
    if ledger is None:
        return delivery
    return f"{delivery}, {'with' if ledger else 'without'} a ledger"


def _codes(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
