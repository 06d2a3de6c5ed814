"""What is public is documented, what is documented exists, and so do the reference's names."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

import localqueue
from localqueue import (
    Cancelled,
    JournalEvent,
    LeaseAnswer,
    PersistentQueue,
    PersistentWorkerConfig,
    QueueMessage,
    QueueSettings,
    QueueSpec,
    QueueStats,
    State,
    errors,
    idempotency,
    outcome,
    policies,
    resilience,
    results,
    retry,
    rule,
    spark,
    telemetry,
    testing,
    workers,
)
from localqueue.adapters import dispatch, notification
from localqueue.commits import protocol as commit_protocol
from localqueue.spark import options as spark_options
from localqueue.spark.read import schema
from localqueue.spark.write import put_columns
from localqueue.stores import minimal, protocol, records
from localqueue.stores.sqlite.states import ACTORS, KINDS
from localqueue.telemetry import prometheus
from localqueue.testing import (
    commit_contract,
    idempotency_contract,
    result_contract,
    store_contract,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
OVERVIEWS = {"api.md", "policies.md", "guarantees.md", "compatibility.md", "index.md"}
"""Pages that list everything: a policy must be explained on another one as well."""

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_]\w*")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def named(text: str) -> set[str]:
    """What a page names: the word with which each `code` of its text begins."""
    spans = _CODE.findall(_FENCED.sub("", text))
    return {found[0] for span in spans if (found := _NAME.match(span))}


def missing(names: Iterable[str], text: str) -> list[str]:
    return sorted(set(names) - named(text))


def policy_names() -> set[str]:
    """Every class that can be given as a policy, those of the adapters included."""
    modules = (policies, notification, dispatch)
    classes = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {
        name
        for name, cls in classes.items()
        if inspect.isclass(cls) and hasattr(cls, "as_dict") and not getattr(cls, "_is_protocol", 0)
    }


# --- what is public is documented ---------------------------------------------------------------
def test_every_public_name_is_on_the_api_page() -> None:
    assert missing(localqueue.__all__, page("api.md")) == []


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in localqueue.__all__ if not hasattr(localqueue, name)] == []
    assert len(localqueue.__all__) == len(set(localqueue.__all__))
    assert set(localqueue.__all__) <= set(dir(localqueue))


def test_a_name_that_does_not_exist_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        getattr(localqueue, "NoSuchThing")  # noqa: B009  # type checkers see no such name


def test_every_method_and_option_of_the_queue_is_on_the_api_page() -> None:
    methods = [name for name in dir(PersistentQueue) if not name.startswith("_")]
    options = list(inspect.signature(PersistentQueue).parameters)

    assert missing(methods + options, page("api.md")) == []


def test_every_policy_has_a_page_that_explains_it() -> None:
    pages = [path.name for path in DOCS.glob("*.md") if path.name not in OVERVIEWS]
    explained = set().union(*(named(page(name)) for name in pages))

    assert sorted(policy_names() - {"QueuePolicySet", "QueueSemantics"} - explained) == []
    assert missing(policy_names(), page("policies.md") + page("commit.md")) == [
        "AsyncioNotification"  # another name of AsyncNotification
    ]


def test_every_policy_is_public() -> None:
    assert sorted(policy_names() - set(localqueue.__all__)) == []


def test_every_kind_of_event_and_every_actor_is_on_the_journal_page() -> None:
    table = page("journal.md").partition("## Kinds")[2]

    assert missing(KINDS, table) == []
    assert [actor for actor in ACTORS if actor not in table] == []


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (QueueSettings, "settings.md"),
        (QueueMessage, "messages.md"),
        (QueueStats, "messages.md"),
    ],
)
def test_every_setting_and_field_is_on_its_page(kind: type, where: str) -> None:
    assert missing([field.name for field in dataclasses.fields(kind)], page(where)) == []


def test_every_field_of_an_event_is_on_the_journal_page() -> None:
    assert missing(JournalEvent._fields, page("journal.md")) == []


def test_every_error_is_public_and_on_the_errors_page() -> None:
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value)}

    assert sorted(classes - set(localqueue.__all__)) == []
    assert [name for name in sorted(classes) if name not in page("errors.md")] == []


def test_the_tree_of_errors_is_drawn_as_the_classes_are() -> None:
    tree = page("errors.md").partition("```text\n")[2].partition("```")[0]
    drawn = re.findall(r"^([ │├└─]*)(\w+)", tree, re.MULTILINE)
    above: list[type] = []
    for indent, name in drawn:
        error = getattr(errors, name)
        del above[len(indent) // 4 :]
        assert error.__bases__[:1] == tuple(above[-1:] or [Exception]), name
        above.append(error)

    assert tree in inspect.cleandoc(errors.__doc__ or "")
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    assert len(drawn) == len([cls for cls in classes if not issubclass(cls, Warning)])


def test_every_option_and_member_of_workers_is_on_the_workers_page() -> None:
    options = [*inspect.signature(workers.Worker).parameters][2:]
    members = [name for name in dir(workers.CurrentMessage) if not name.startswith("_")]
    counts = [field.name for field in dataclasses.fields(workers.Summary)]
    told = {"tell"}  # for workers, not for handlers

    names = [*options, *members, "message", *counts]

    assert missing(sorted(set(names) - told), page("workers.md")) == []


def test_every_public_name_of_ledgers_and_results_is_on_their_page() -> None:
    names = {*idempotency.__all__, *results.__all__}

    assert missing(names, page("effectively-once.md")) == []


def test_every_public_name_of_retries_and_limits_is_on_its_page() -> None:
    assert missing(retry.__all__, page("retry.md")) == []
    assert missing(resilience.__all__, page("persistent-worker.md")) == []


def test_every_name_option_and_column_of_spark_is_on_its_page() -> None:
    options = [option.name for option in spark_options.OPTIONS.values()]
    # The last one stands for the options of Worker.
    worker = [*inspect.signature(spark.SparkWorker).parameters][2:-1]
    columns = [*schema.MESSAGE_COLUMNS, *schema.JOURNAL_COLUMNS, *put_columns.BESIDE_VALUE]

    assert missing([*spark.__all__, *options, *worker, *columns], page("spark.md")) == []


def test_every_option_of_a_worker_configuration_is_on_the_persistent_workers_page() -> None:
    options = [*PersistentWorkerConfig().options(), "dead_letter_on_exhaustion"]

    assert missing(options, page("persistent-worker.md")) == []


def test_every_step_of_a_spec_is_on_the_policies_page() -> None:
    steps = [name for name in dir(QueueSpec) if name.startswith(("with_", "build_"))]

    assert missing(steps, page("policies.md")) == []


def test_a_name_that_is_left_out_is_found() -> None:
    kept = page("api.md").replace("`PersistentQueue`", "the queue")

    assert missing(localqueue.__all__, kept) == ["PersistentQueue"]
    assert missing(["acked"], "acked, and\n```text\n`acked`\n```\n`acked_at`") == ["acked"]


# --- what is documented exists ------------------------------------------------------------------
def test_every_capitalised_name_on_the_api_page_exists() -> None:
    homes: list[ModuleType | type] = [
        localqueue, protocol, records, outcome, minimal, testing, store_contract,
        LeaseAnswer, Cancelled, State, telemetry, prometheus, workers, rule, retry, resilience,
        idempotency, results, commit_protocol, commit_contract, result_contract,
        idempotency_contract, spark,
    ]  # fmt: skip
    capitalised = [name for name in named(page("api.md")) if name[0].isupper()]

    gone = [name for name in capitalised if not any(hasattr(home, name) for home in homes)]

    assert gone == []


# --- the names of the API reference ---------------------------------------------------------------
HERE = """
    PersistentQueue QueueSemantics QueuePolicySet QoS QueueSpec
    LocalityPolicy LocalQueuePlacement RemoteQueuePlacement
    LeasePolicy FixedLeaseTimeout AcknowledgementPolicy ExplicitAcknowledgement
    DeadLetterPolicy DeadLetterQueue DeduplicationPolicy DedupeKeySupport NoDeduplication
    AtLeastOnceDelivery AtMostOnceDelivery EffectivelyOnceDelivery
    NoResultPolicy ReturnStoredResult
    CommitPolicy LocalAtomicCommit TransactionalOutboxCommit TwoPhaseCommit SagaCommit
    PullConsumption PushConsumption DispatchPolicy NoDispatcher CallbackDispatcher
    ThreadedDispatcher WorkerPoolDispatcher
    NotificationPolicy NoNotification CallbackNotification InProcessNotification
    AsyncNotification AsyncioNotification
    PointToPointRouting PublishSubscribeRouting
    SubscriptionPolicy NoSubscriptions StaticFanoutSubscriptions
    FifoReadyOrdering PriorityOrdering BestEffortOrdering
    BoundedBackpressure RejectingBackpressure
    PersistentWorkerConfig persistent_worker persistent_async_worker QueueMessage QueueStats
    QueueStore SQLiteQueueStore MemoryQueueStore
    LOCAL_AT_LEAST_ONCE LOCAL_QUEUE_PLACEMENT FIXED_LEASE_TIMEOUT EXPLICIT_ACKNOWLEDGEMENT
    DEAD_LETTER_QUEUE DEDUPE_KEY_SUPPORT NO_DEDUPLICATION AT_LEAST_ONCE_DELIVERY
    PULL_CONSUMPTION NO_DISPATCHER NO_NOTIFICATION POINT_TO_POINT_ROUTING NO_SUBSCRIPTIONS
    FIFO_READY_ORDERING NO_RESULT_POLICY RETURN_STORED_RESULT LOCAL_ATOMIC_COMMIT TWO_PHASE_COMMIT
"""

HERE_IN = {
    "localqueue.results": """
        ResultStore MemoryResultStore SQLiteResultStore
    """,
    "localqueue.idempotency": """
        IdempotencyRecord IdempotencyStore MemoryIdempotencyStore SQLiteIdempotencyStore
    """,
    "localqueue.retry": """
        persistent_retry persistent_async_retry PersistentRetrying PersistentAsyncRetrying
        PersistentRetryExhausted RetryRecord close_default_store
        key_from_argument key_from_attr idempotency_key_from_id
        AttemptStore MemoryAttemptStore SQLiteAttemptStore AttemptStoreLockedError
    """,
}
"""Names of the reference that have a module of their own."""

LATER = {
    "localqueue": """
        LMDBQueueStore QueueStoreLockedError
        CommandDispatcher
        SignalNotification SocketNotification WebhookNotification SSENotification
        WebSocketNotification RedisNotification PostgresNotification
    """,
    "localqueue.results": """
        LMDBResultStore
    """,
    "localqueue.idempotency": """
        LMDBIdempotencyStore
    """,
    "localqueue.retry": """
        LMDBAttemptStore
    """,
}
"""Names that do not exist yet. Who makes one moves it to HERE, and says so on the API page."""


@pytest.mark.parametrize("name", HERE.split())
def test_a_name_of_the_reference_can_be_imported_from_localqueue(name: str) -> None:
    assert name in localqueue.__all__
    assert getattr(localqueue, name) is not None


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in HERE_IN.items() for name in names.split()],
)
def test_a_name_of_the_reference_can_be_imported_from_its_module(module: str, name: str) -> None:
    home = importlib.import_module(module)

    assert name in home.__all__
    assert getattr(home, name) is not None
    assert name in named(page("api.md"))


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in LATER.items() for name in names.split()],
)
def test_a_name_that_comes_later_does_not_exist_yet(module: str, name: str) -> None:
    there = importlib.util.find_spec(module) is not None and hasattr(
        importlib.import_module(module), name
    )

    assert not there, f"{module}.{name} exists now: move it from LATER to HERE and document it"
    assert not hasattr(localqueue, name)
