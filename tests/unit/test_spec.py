"""A spec describes a queue and its workers; each step is a new spec."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from localqueue.errors import (
    ConfigurationError,
    InvalidArgument,
    LocalQueueError,
    WrongType,
)
from localqueue.policies import (
    AT_LEAST_ONCE_DELIVERY,
    DEAD_LETTER_QUEUE,
    AtLeastOnceDelivery,
    AtMostOnceDelivery,
    DeadLetterQueue,
    EffectivelyOnceDelivery,
    PriorityOrdering,
    QueuePolicySet,
    ReturnStoredResult,
    TransactionalOutboxCommit,
)
from localqueue.queue import PersistentQueue
from localqueue.spec import QoS, QueueSpec
from localqueue.stores.memory import MemoryQueueStore

SPEC = QueueSpec("jobs")
FULL = (
    SPEC.with_qos(QoS.AT_LEAST_ONCE)
    .with_dead_letter_queue()
    .with_retry(max_retries=3)
    .with_dead_letter_on_failure(False)
    .with_release_delay(5)
    .with_min_interval(2)
    .with_circuit_breaker(threshold=4)
)

Step = Callable[[QueueSpec], QueueSpec]
STEPS: list[Step] = [
    lambda spec: spec.with_name("other"),
    lambda spec: spec.with_qos("at-most-once"),
    lambda spec: spec.with_dead_letter_queue(),
    lambda spec: spec.with_dead_letter_on_failure(),
    lambda spec: spec.with_retry(max_tries=3),
    lambda spec: spec.with_circuit_breaker(threshold=3),
    lambda spec: spec.with_release_delay(1),
    lambda spec: spec.with_min_interval(1),
]


def worker_options(spec: QueueSpec, **overrides: Any) -> dict[str, Any]:
    config = spec.build_worker_config(**overrides)
    names = (
        "dead_letter_on_failure",
        "release_delay",
        "min_interval",
        "circuit_breaker_failures",
        "circuit_breaker_cooldown",
        "retry_kwargs",
    )
    return {name: getattr(config, name) for name in names}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_returns_a_new_spec_and_leaves_the_old_one(step: Step) -> None:
    spec = QueueSpec("jobs")

    changed = step(spec)

    assert changed != spec
    assert spec == QueueSpec("jobs")


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        SPEC.name = "other"  # type: ignore[misc]


def test_a_spec_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(FULL)) == FULL


def test_an_empty_spec_chooses_nothing() -> None:
    assert SPEC.policy_set is None
    assert SPEC.retry_kwargs == {}


def test_a_spec_can_be_reused_under_other_names() -> None:
    assert FULL.with_name("mail").with_name("jobs") == FULL


@pytest.mark.parametrize(
    ("step", "argument", "error"),
    [
        (lambda s, a: QueueSpec(a), "", InvalidArgument),
        (lambda s, a: s.with_name(a), "a:b", InvalidArgument),
        (lambda s, a: s.with_name(a), None, WrongType),
        (lambda s, a: s.with_qos(a), "exactly-once", InvalidArgument),
        (lambda s, a: s.with_qos(a), None, InvalidArgument),
        (lambda s, a: s.with_dead_letter_on_failure(a), "yes", WrongType),
        (lambda s, a: s.with_release_delay(a), -1, InvalidArgument),
        (lambda s, a: s.with_release_delay(a), math.nan, InvalidArgument),
        (lambda s, a: s.with_min_interval(a), -1, InvalidArgument),
        (lambda s, a: s.with_min_interval(a), "1", WrongType),
        (lambda s, a: s.with_circuit_breaker(threshold=a), -1, InvalidArgument),
        (lambda s, a: s.with_circuit_breaker(threshold=a), True, WrongType),
        (lambda s, a: s.with_circuit_breaker(threshold=1, cooldown=a), -1, InvalidArgument),
        (lambda s, a: s.with_circuit_breaker(threshold=1, cooldown=a), 0, ConfigurationError),
        (lambda s, a: s.with_retry(max_retries=a), 0, InvalidArgument),
        (lambda s, a: s.with_retry(max_tries=a), "3", InvalidArgument),
        (lambda s, a: s.with_retry(max_tries=2, stop=a), object(), ConfigurationError),
        (lambda s, a: s.with_retry(max_tries=2, max_retries=a), 2, ConfigurationError),
        (lambda s, a: s.with_retry(max_retries=2).with_retry(stop=a), 1, ConfigurationError),
        (lambda s, a: s.with_retry(release_delay=a), 5, ConfigurationError),
    ],
)
def test_a_step_that_means_nothing_is_refused_where_it_is_written(
    step: Callable[[QueueSpec, Any], QueueSpec], argument: Any, error: type[LocalQueueError]
) -> None:
    with pytest.raises(error):
        step(SPEC, argument)


# --- delivery -------------------------------------------------------------------------------------
def test_the_qualities_of_service_are_strings() -> None:
    assert [str(qos) for qos in QoS] == ["at-least-once", "at-most-once", "effectively-once"]


@pytest.mark.parametrize(
    ("qos", "delivery"),
    [
        (QoS.AT_LEAST_ONCE, AtLeastOnceDelivery()),
        (QoS.AT_MOST_ONCE, AtMostOnceDelivery()),
        (QoS.EFFECTIVELY_ONCE, EffectivelyOnceDelivery()),
    ],
)
def test_a_quality_of_service_is_a_delivery_policy(qos: QoS, delivery: Any) -> None:
    assert SPEC.with_qos(qos).policy_set == QueuePolicySet(delivery_policy=delivery)
    assert SPEC.with_qos(qos) == SPEC.with_qos(str(qos))


def test_at_least_once_uses_the_shared_instance() -> None:
    assert SPEC.with_qos("at-least-once").delivery_policy is AT_LEAST_ONCE_DELIVERY


def test_effectively_once_takes_ledger_results_and_commit() -> None:
    ledger = object()
    results, commit = ReturnStoredResult(), TransactionalOutboxCommit()

    spec = SPEC.with_qos(
        QoS.EFFECTIVELY_ONCE,
        idempotency_store=ledger,
        result_policy=results,
        commit_policy=commit,
    )

    assert spec.delivery_policy == EffectivelyOnceDelivery(ledger, results, commit)


@pytest.mark.parametrize("qos", [QoS.AT_LEAST_ONCE, QoS.AT_MOST_ONCE])
@pytest.mark.parametrize(
    "option",
    [
        {"idempotency_store": object()},
        {"result_policy": ReturnStoredResult()},
        {"commit_policy": TransactionalOutboxCommit()},
    ],
)
def test_what_belongs_to_effectively_once_is_refused_elsewhere(
    qos: QoS, option: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match=r"need QoS\.EFFECTIVELY_ONCE"):
        SPEC.with_qos(qos, **option)


def test_a_dead_letter_queue_is_a_policy_of_the_queue() -> None:
    own = DeadLetterQueue()

    assert SPEC.with_dead_letter_queue().dead_letter_policy is DEAD_LETTER_QUEUE
    assert SPEC.with_dead_letter_queue(own).dead_letter_policy is own


# --- retries --------------------------------------------------------------------------------------
def test_max_retries_is_another_name_of_max_tries() -> None:
    assert SPEC.with_retry(max_retries=3).retry_kwargs == {"max_tries": 3}


def test_retry_options_of_several_calls_are_merged() -> None:
    spec = SPEC.with_retry(max_retries=3, wait=1).with_retry(wait=2, retry="any")

    assert spec.retry_kwargs == {"max_tries": 3, "wait": 2, "retry": "any"}


def test_retry_options_are_handed_out_as_a_copy() -> None:
    spec = SPEC.with_retry(max_tries=3)

    spec.retry_kwargs["max_tries"] = 9

    assert spec.retry_kwargs == {"max_tries": 3}


def test_a_dict_that_is_changed_afterwards_does_not_change_the_spec() -> None:
    retry, worker = {"max_tries": 3}, {"release_delay": 1.0}
    spec = QueueSpec("jobs", retry=retry, worker=worker)

    retry["max_tries"] = 9
    worker["release_delay"] = 9.0

    assert spec.retry_kwargs == {"max_tries": 3}
    assert worker_options(spec)["release_delay"] == 1.0


# --- workers --------------------------------------------------------------------------------------
def test_a_spec_builds_the_configuration_of_its_workers() -> None:
    assert worker_options(FULL) == {
        "dead_letter_on_failure": False,
        "release_delay": 5.0,
        "min_interval": 2.0,
        "circuit_breaker_failures": 4,
        "circuit_breaker_cooldown": 30.0,
        "retry_kwargs": {"max_tries": 3},
    }


def test_overrides_change_the_configuration_only() -> None:
    changed = worker_options(FULL, max_tries=7, release_delay=0, dead_letter_on_exhaustion=True)

    assert (changed["retry_kwargs"], changed["release_delay"]) == ({"max_tries": 7}, 0.0)
    assert changed["dead_letter_on_failure"]
    assert worker_options(FULL)["retry_kwargs"] == {"max_tries": 3}


def test_an_empty_spec_builds_the_default_configuration() -> None:
    assert worker_options(SPEC) == {
        "dead_letter_on_failure": True,
        "release_delay": 0.0,
        "min_interval": 0.0,
        "circuit_breaker_failures": 0,
        "circuit_breaker_cooldown": 0.0,
        "retry_kwargs": {},
    }


def test_a_threshold_of_zero_takes_the_breaker_out_with_its_cooldown() -> None:
    spec = SPEC.with_circuit_breaker(threshold=3, cooldown=7)
    off = spec.with_circuit_breaker(threshold=0, cooldown=7)

    assert worker_options(spec)["circuit_breaker_cooldown"] == 7.0
    assert worker_options(off)["circuit_breaker_failures"] == 0
    assert worker_options(off)["circuit_breaker_cooldown"] == 0.0


def test_dead_lettering_can_be_chosen_again() -> None:
    spec = SPEC.with_dead_letter_on_failure(False).with_dead_letter_on_failure()

    assert worker_options(spec)["dead_letter_on_failure"]


# --- queues ---------------------------------------------------------------------------------------
def test_a_spec_builds_its_queue() -> None:
    spec = SPEC.with_qos("at-most-once").with_retry(max_retries=3)

    with spec.build_queue(store=MemoryQueueStore(), ordering_policy=PriorityOrdering()) as queue:
        assert isinstance(queue, PersistentQueue)
        assert queue.name == "jobs"
        assert queue.delivery_policy == AtMostOnceDelivery()
        assert queue.ordering_policy == PriorityOrdering()
        assert queue.retry_defaults == {"max_tries": 3}


def test_the_queue_itself_builds_from_a_spec_too() -> None:
    queues: list[PersistentQueue[Any]] = [
        PersistentQueue.from_spec(FULL, store=MemoryQueueStore()),
        PersistentQueue(spec=FULL, store=MemoryQueueStore()),
    ]
    for queue in queues:
        with queue:
            assert queue.name == "jobs"
            assert queue.dead_letter_policy is DEAD_LETTER_QUEUE
            assert queue.build_worker_config().retry_kwargs == {"max_tries": 3}
            assert queue.build_worker_config(max_tries=9).retry_kwargs == {"max_tries": 9}


def test_a_queue_without_a_spec_builds_a_plain_configuration() -> None:
    with PersistentQueue[Any]("jobs", store=MemoryQueueStore()) as queue:
        config = queue.build_worker_config(max_tries=2, release_delay=1)

    assert (config.retry_kwargs, config.release_delay) == ({"max_tries": 2}, 1.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"policy_set": QueuePolicySet()}, "policy_set= or the spec's policies"),
        ({"retry_defaults": {}}, "retry_defaults= or the spec's retry"),
        (
            {"delivery_policy": AtLeastOnceDelivery()},
            "delivery_policy= or policy_set.delivery_policy",
        ),
    ],
)
def test_what_would_replace_a_part_of_the_spec_is_refused(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        FULL.build_queue(store=MemoryQueueStore(), **options)


def test_another_spec_is_refused() -> None:
    with pytest.raises(WrongType, match="takes no other spec="):
        FULL.build_queue(spec=SPEC)


def test_what_the_spec_does_not_say_can_be_given_to_the_queue() -> None:
    bundle = QueuePolicySet(ordering_policy=PriorityOrdering())

    with SPEC.build_queue(
        store=MemoryQueueStore(), policy_set=bundle, retry_defaults={"max_tries": 2}
    ) as queue:
        assert queue.ordering_policy == PriorityOrdering()
        assert queue.retry_defaults == {"max_tries": 2}
