"""Every rule of the table fires for its combination, and only for that."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import Any

import pytest

from localqueue.adapters.dispatch import CallbackDispatcher
from localqueue.adapters.notification import InProcessNotification
from localqueue.errors import CompatibilityWarning, ConfigurationError, InvalidMessage
from localqueue.policies import (
    AtMostOnceDelivery,
    BestEffortOrdering,
    BoundedBackpressure,
    BytesCodec,
    CrashLimit,
    DeadLetterQueue,
    DedupeKeySupport,
    DropNewestBackpressure,
    DropOldestBackpressure,
    DynamicFanoutSubscriptions,
    EffectivelyOnceDelivery,
    FixedLeaseTimeout,
    Journal,
    LocalQueuePlacement,
    MessageTTL,
    NoDeduplication,
    OrderingKeys,
    OverflowBackpressure,
    PriorityOrdering,
    PublishSubscribeRouting,
    PullConsumption,
    PushConsumption,
    RejectingBackpressure,
    RemoteQueuePlacement,
    StaticFanoutSubscriptions,
    ThrottlingBackpressure,
    compatibility,
    resolve,
)
from localqueue.policies.compatibility import (
    RULES,
    Finding,
    Rule,
    Use,
    Verdict,
    check,
    check_use,
    enforce,
)
from localqueue.stores.protocol import Atomicity, StoreCapabilities
from localqueue.stores.settings import QueueSettings

FILE = StoreCapabilities(
    survives_restart=True,
    shared_between_processes=True,
    ordered=True,
    wakes_waiters=True,
    transactional=Atomicity.STORE,
)
MEMORY = StoreCapabilities(ordered=True, wakes_waiters=True, transactional=Atomicity.STORE)
SERVER = StoreCapabilities(
    survives_restart=True,
    shared_between_processes=True,
    shared_between_hosts=True,
    ordered=True,
    transactional=Atomicity.STORE,
)
SHARDS = StoreCapabilities(survives_restart=True, ordered=True, transactional=Atomicity.PARTITION)
SIMPLE = StoreCapabilities(survives_restart=True, ordered=True)
UNORDERED = StoreCapabilities(survives_restart=True, transactional=Atomicity.STORE)


class NoDeadLetters:
    """A policy of the user's own: failures are not kept."""

    dead_letters = False


class WorkersDispatch:
    """A dispatcher whose handlers lease and settle."""

    dispatches_on_put = True
    runs_under_lease = True

    def dispatch(self, message: object) -> None: ...


def topic(mode: str = "copy", **options: Any) -> dict[str, Any]:
    return {
        "routing_policy": PublishSubscribeRouting(mode),
        "subscription_policy": StaticFanoutSubscriptions(["audit"]),
        **options,
    }


def once(**options: Any) -> dict[str, Any]:
    return {"delivery_policy": EffectivelyOnceDelivery(idempotency_store=object()), **options}


AT_MOST_ONCE: dict[str, Any] = {"delivery_policy": AtMostOnceDelivery()}
CALLBACK: dict[str, Any] = {"dispatch_policy": CallbackDispatcher([print])}


@dataclass(frozen=True)
class Built:
    """A queue with these options on this store."""

    options: dict[str, Any] = field(default_factory=dict)
    store: StoreCapabilities = FILE


@dataclass(frozen=True)
class Called:
    """This call on a queue with these options."""

    use: Use
    options: dict[str, Any] = field(default_factory=dict)


PRIORITY = QueueSettings(ordering="priority")
PER_KEY = QueueSettings(ordering="per-key")

FIRES: dict[str, list[Built | Called]] = {
    "push-reaches-nobody": [Built({"consumption_policy": PushConsumption()})],
    "dispatch-beside-pull": [Built({"consumption_policy": PullConsumption(), **CALLBACK})],
    "dispatch-before-at-most-once": [Built({**AT_MOST_ONCE, **CALLBACK})],
    "dispatch-beside-the-ledger": [Built(once(**CALLBACK))],
    "topic-without-subscribers": [
        Built({"routing_policy": PublishSubscribeRouting()}),
        Called(Use(), {"routing_policy": PublishSubscribeRouting()}),
    ],
    "subscribers-without-topic": [
        Built({"subscription_policy": StaticFanoutSubscriptions(["audit"])}),
        Built({"subscription_policy": DynamicFanoutSubscriptions()}),
    ],
    "cursor-with-another-order": [
        Built(topic("cursor", ordering_policy=PriorityOrdering())),
        Built(topic("cursor", ordering_policy=OrderingKeys())),
    ],
    "shared-body-with-uneven-capacity": [
        Built(topic(mode, backpressure=backpressure))
        for mode in ("cursor", "hybrid")
        for backpressure in (
            DropNewestBackpressure(5),
            OverflowBackpressure(5),
            OverflowBackpressure(5, to="spill"),
        )
    ],
    "topic-without-transactions": [Built(topic(), SIMPLE), Built(topic("cursor"), SIMPLE)],
    "delay-with-cursor": [
        Called(Use(delay=1.0, settings=QueueSettings(fanout="cursor")), topic("cursor"))
    ],
    "earlier-start-without-payloads": [
        Called(Use(call="subscribe", start="earliest"), topic()),
        Called(Use(call="subscribe", start="some position"), topic()),
    ],
    "priority-without-ordering": [
        Called(Use(priority=1)),
        Called(Use(priority=1, settings=PER_KEY)),
        # Another process has changed the queue's ordering since: the store's row decides.
        Called(Use(priority=1), {"ordering_policy": PriorityOrdering()}),
    ],
    "key-without-ordering": [
        Called(Use(ordering_key="customer")),
        Called(Use(ordering_key="customer", settings=PRIORITY)),
    ],
    "priority-on-an-unordered-store": [Built({"ordering_policy": PriorityOrdering()}, UNORDERED)],
    "keys-on-an-unordered-store": [Built({"ordering_policy": OrderingKeys()}, UNORDERED)],
    "dedupe-key-refused": [
        Called(Use(dedupe_key="k"), {"deduplication_policy": NoDeduplication()})
    ],
    "dedupe-key-missing": [Called(Use(), once())],
    "key-required-but-refused": [Built(once(deduplication_policy=NoDeduplication()))],
    "effectively-once-without-ledger": [Built({"delivery_policy": EffectivelyOnceDelivery()})],
    "effectively-once-that-forgets": [Built(once(), MEMORY)],
    "effectively-once-that-drops": [
        Built(once(backpressure=DropNewestBackpressure(5))),
        Built(once(backpressure=DropOldestBackpressure(5))),
        Built(once(expiry_policy=MessageTTL(5))),
    ],
    "dead-letters-after-at-most-once": [
        Built({**AT_MOST_ONCE, "dead_letter_policy": DeadLetterQueue()})
    ],
    "lease-after-at-most-once": [Built({**AT_MOST_ONCE, "lease_policy": FixedLeaseTimeout(5)})],
    "crash-limit-after-at-most-once": [Built({**AT_MOST_ONCE, "crash_limit_policy": CrashLimit()})],
    "dead-letters-needed": [
        Built({"dead_letter_policy": NoDeadLetters(), **options})
        for options in (
            {"backpressure": OverflowBackpressure(5)},
            {"expiry_policy": MessageTTL(5, "dead-letter")},
            {"crash_limit_policy": CrashLimit()},
        )
    ],
    "overflow-into-itself": [Built({"backpressure": OverflowBackpressure(5, to="jobs")})],
    "remote-placement-of-a-local-store": [Built({"locality_policy": RemoteQueuePlacement()})],
    "local-placement-of-a-shared-store": [
        Built({"locality_policy": LocalQueuePlacement()}, SERVER)
    ],
    "policy-beyond-the-store": [
        Built(options, SIMPLE)
        for options in (
            {"expiry_policy": MessageTTL(5)},
            {"crash_limit_policy": CrashLimit(5)},
            {"backpressure": DropOldestBackpressure(5)},
            {"ordering_policy": OrderingKeys()},
            {"journal_policy": Journal(payloads=True)},
            {"codec_policy": BytesCodec()},
            {"deduplication_policy": DedupeKeySupport(window=5)},
        )
    ],
}
"""For each rule, situations that it must find."""

QUIET: dict[str, list[Built | Called]] = {
    "push-reaches-nobody": [
        Built({"consumption_policy": PushConsumption(), **CALLBACK}),
        Built(
            {
                "consumption_policy": PushConsumption(),
                "notification_policy": InProcessNotification(),
            }
        ),
        Built({"consumption_policy": PullConsumption()}),
    ],
    "dispatch-beside-pull": [
        Built(CALLBACK),
        Built({"consumption_policy": PushConsumption(), **CALLBACK}),
        Built({"consumption_policy": PullConsumption(), "dispatch_policy": WorkersDispatch()}),
    ],
    "dispatch-before-at-most-once": [
        Built(AT_MOST_ONCE),
        Built({**AT_MOST_ONCE, "dispatch_policy": WorkersDispatch()}),
        Built({**AT_MOST_ONCE, "notification_policy": InProcessNotification()}),
    ],
    "dispatch-beside-the-ledger": [Built(once()), Built(once(dispatch_policy=WorkersDispatch()))],
    "topic-without-subscribers": [
        Built(topic()),
        Called(Use(), topic()),
        Called(Use(), topic(subscription_policy=DynamicFanoutSubscriptions())),
        Called(Use(call="subscribe"), {"routing_policy": PublishSubscribeRouting()}),
    ],
    "subscribers-without-topic": [Built(topic()), Built()],
    "cursor-with-another-order": [
        Built(topic("cursor")),
        Built(topic("cursor", ordering_policy=BestEffortOrdering())),
        Built(topic("hybrid", ordering_policy=PriorityOrdering())),
        Built(topic("copy", ordering_policy=OrderingKeys())),
    ],
    "shared-body-with-uneven-capacity": [
        Built(topic("copy", backpressure=DropNewestBackpressure(5))),
        Built(topic("cursor", backpressure=DropOldestBackpressure(5))),
        Built(topic("hybrid", backpressure=ThrottlingBackpressure(5))),
        Built(topic("cursor", backpressure=RejectingBackpressure(5))),
    ],
    "topic-without-transactions": [Built(topic()), Built(topic(), SHARDS), Built({}, SIMPLE)],
    "delay-with-cursor": [
        Called(Use(settings=QueueSettings(fanout="cursor")), topic("cursor")),
        Called(Use(delay=1.0, settings=QueueSettings(fanout="hybrid")), topic("hybrid")),
    ],
    "earlier-start-without-payloads": [
        Called(Use(call="subscribe"), topic()),
        Called(
            Use(
                call="subscribe",
                start="earliest",
                settings=QueueSettings(journal_payloads=True),
            ),
            topic(),
        ),
    ],
    "priority-without-ordering": [
        Called(Use(priority=0)),
        Called(Use(priority=1, settings=PRIORITY)),
    ],
    "key-without-ordering": [Called(Use(ordering_key="customer", settings=PER_KEY))],
    "priority-on-an-unordered-store": [
        Built({"ordering_policy": PriorityOrdering()}),
        Built({}, UNORDERED),
    ],
    "keys-on-an-unordered-store": [
        Built({"ordering_policy": OrderingKeys()}),
        Built({"ordering_policy": BestEffortOrdering()}, UNORDERED),
    ],
    "dedupe-key-refused": [
        Called(Use(dedupe_key="k")),
        Called(Use(), {"deduplication_policy": NoDeduplication()}),
    ],
    "dedupe-key-missing": [
        Called(Use(dedupe_key="k"), once()),
        Called(Use()),
        Called(Use(call="subscribe"), topic(**once())),
    ],
    "key-required-but-refused": [
        Built(once()),
        Built({"deduplication_policy": NoDeduplication()}),
    ],
    "effectively-once-without-ledger": [Built(once()), Built()],
    "effectively-once-that-forgets": [Built(once()), Built({}, MEMORY)],
    "effectively-once-that-drops": [
        Built(once(backpressure=BoundedBackpressure(5))),
        Built(once(backpressure=OverflowBackpressure(5))),
        Built(once(expiry_policy=MessageTTL(5, "dead-letter"))),
        Built({"backpressure": DropOldestBackpressure(5)}),
    ],
    "dead-letters-after-at-most-once": [
        Built(AT_MOST_ONCE),
        Built({"dead_letter_policy": DeadLetterQueue()}),
        Built({**AT_MOST_ONCE, "dead_letter_policy": NoDeadLetters()}),
    ],
    "lease-after-at-most-once": [Built(AT_MOST_ONCE), Built({"lease_policy": FixedLeaseTimeout()})],
    "crash-limit-after-at-most-once": [
        Built(AT_MOST_ONCE),
        Built({"crash_limit_policy": CrashLimit()}),
    ],
    "dead-letters-needed": [
        Built({"dead_letter_policy": NoDeadLetters()}),
        Built(
            {
                "dead_letter_policy": NoDeadLetters(),
                "backpressure": OverflowBackpressure(5, to="spill"),
                "expiry_policy": MessageTTL(5),
            }
        ),
        Built({"backpressure": OverflowBackpressure(5)}),
    ],
    "overflow-into-itself": [
        Built({"backpressure": OverflowBackpressure(5, to="spill")}),
        Built({"backpressure": OverflowBackpressure(5)}),
    ],
    "remote-placement-of-a-local-store": [
        Built({"locality_policy": RemoteQueuePlacement()}, SERVER),
        Built(),
    ],
    "local-placement-of-a-shared-store": [
        Built({}, SERVER),
        Built({"locality_policy": LocalQueuePlacement()}),
    ],
    "policy-beyond-the-store": [
        Built({"expiry_policy": MessageTTL(5)}),
        Built({"ordering_policy": OrderingKeys()}, SHARDS),
        Built({"ordering_policy": PriorityOrdering()}, SIMPLE),
        Built({"backpressure": ThrottlingBackpressure(5)}, SIMPLE),
        Built({"journal_policy": Journal(), "crash_limit_policy": CrashLimit()}, SIMPLE),
        Built({}, SIMPLE),
    ],
}
"""For each rule, situations beside it that it must leave alone."""


def found_by(situation: Built | Called, rules: tuple[Rule, ...] = RULES) -> set[str]:
    queue = resolve(name="jobs", **situation.options)
    if isinstance(situation, Built):
        return {rule.name for rule in rules if rule.built(queue, situation.store)}
    return {rule.name for rule in rules if rule.used(queue, situation.use)}


def cases(table: dict[str, list[Built | Called]]) -> list[tuple[str, Built | Called]]:
    return [(name, situation) for name, situations in table.items() for situation in situations]


def unproven(rules: tuple[Rule, ...]) -> set[str]:
    """The names for which a table of situations and a table of rules do not agree."""
    names = {rule.name for rule in rules}
    missed = {name for name, situation in cases(FIRES) if name not in found_by(situation, rules)}
    loud = {name for name, situation in cases(QUIET) if name in found_by(situation, rules)}
    return missed | loud | (names ^ FIRES.keys()) | (names ^ QUIET.keys())


@pytest.mark.parametrize(("name", "situation"), cases(FIRES))
def test_a_rule_finds_its_combination(name: str, situation: Built | Called) -> None:
    assert name in found_by(situation)


@pytest.mark.parametrize(("name", "situation"), cases(QUIET))
def test_a_rule_leaves_its_neighbours_alone(name: str, situation: Built | Called) -> None:
    assert name not in found_by(situation)


def test_every_rule_is_exercised_both_ways() -> None:
    assert unproven(RULES) == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_missing_or_never_fires_or_always_fires_would_be_noticed(
    rule: Rule,
) -> None:
    others = tuple(other for other in RULES if other is not rule)
    silent = Rule(rule.name, rule.combination, rule.verdict, rule.sentence)
    shrill = Rule(
        rule.name,
        rule.combination,
        rule.verdict,
        rule.sentence,
        built=lambda queue, store: True,
        used=lambda queue, use: True,
    )

    assert unproven(others) == {rule.name}
    assert unproven((*others, silent)) == {rule.name}
    assert unproven((*others, shrill)) == {rule.name}


def test_names_are_unique_and_every_sentence_says_what_to_do() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert any(
            word in rule.sentence
            for word in ("use ", "add ", "let ", "leave ", "pass ", "attach ", "name ")
        ), rule.name


def test_a_plain_queue_has_no_findings_on_any_store() -> None:
    for store in (FILE, MEMORY, SERVER, SHARDS, SIMPLE, UNORDERED, StoreCapabilities()):
        assert check(resolve(name="jobs"), store) == []
    check_use(resolve(name="jobs"), Use())


def test_findings_come_in_the_order_of_the_table() -> None:
    queue = resolve(
        name="jobs",
        delivery_policy=EffectivelyOnceDelivery(),
        consumption_policy=PushConsumption(),
    )

    findings = check(queue, MEMORY)

    names = [rule.name for rule in RULES]
    assert [found.rule for found in findings] == sorted(
        ("push-reaches-nobody", "effectively-once-without-ledger", "effectively-once-that-forgets"),
        key=names.index,
    )
    assert all(isinstance(found, Finding) for found in findings)
    assert {found.verdict for found in findings} == {Verdict.WARN}


def build(options: dict[str, Any], store: StoreCapabilities = FILE) -> None:
    """As the constructor of a queue does it."""
    enforce(resolve(name="jobs", **options), store)


REFUSED = [rule.name for rule in RULES if rule.verdict is Verdict.REFUSE]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_raises_when_the_queue_is_built(name: str) -> None:
    rule = next(rule for rule in RULES if rule.name == name)
    situation = FIRES[name][0]
    assert isinstance(situation, Built)

    with pytest.raises(ConfigurationError) as refused:
        build(situation.options, situation.store)

    assert rule.sentence in str(refused.value)


WARNED = [
    name
    for name, situations in FIRES.items()
    if isinstance(situations[0], Built) and name not in REFUSED
]


@pytest.mark.parametrize("name", WARNED)
def test_what_only_misleads_warns_when_the_queue_is_built(name: str) -> None:
    rule = next(rule for rule in RULES if rule.name == name)
    situation = FIRES[name][0]
    assert isinstance(situation, Built)

    with pytest.warns(CompatibilityWarning) as warned:
        build(situation.options, situation.store)

    assert [str(warning.message) for warning in warned] == [rule.sentence]


def test_a_warning_points_to_the_line_that_made_the_queue() -> None:
    with pytest.warns(CompatibilityWarning) as warned:
        build({"consumption_policy": PushConsumption()})

    assert warned[0].filename == __file__
    assert "build({" in linecache.getline(__file__, warned[0].lineno)


def test_several_refusals_are_told_together() -> None:
    with pytest.raises(ConfigurationError) as refused:
        build(topic("cursor", ordering_policy=PriorityOrdering()), SIMPLE)

    assert str(refused.value).count("\n") == 1


USED = [(name, situation) for name, situation in cases(FIRES) if isinstance(situation, Called)]


@pytest.mark.parametrize(("name", "situation"), USED)
def test_what_fails_at_use_raises_the_rules_error(name: str, situation: Called) -> None:
    rule = next(rule for rule in RULES if rule.name == name)

    with pytest.raises(rule.error) as refused:
        check_use(resolve(name="jobs", **situation.options), situation.use)

    assert str(refused.value) == rule.sentence
    assert isinstance(refused.value, ValueError)
    assert rule.verdict is Verdict.FAIL_AT_USE


def test_the_sentences_that_the_reference_documents_are_there() -> None:
    plain = resolve(name="jobs")

    with pytest.raises(InvalidMessage, match=r"^priority requires PriorityOrdering"):
        check_use(plain, Use(priority=1))
    with pytest.raises(
        ConfigurationError,
        match=r"^publish-subscribe routing requires configured subscribers",
    ):
        check_use(resolve(name="jobs", routing_policy=PublishSubscribeRouting()), Use())


def test_calls_are_checked_in_the_order_keys_then_order_then_topic() -> None:
    bad = Use(dedupe_key="k", priority=1, ordering_key="o")
    routing = PublishSubscribeRouting()
    queue = resolve(name="jobs", deduplication_policy=NoDeduplication(), routing_policy=routing)

    with pytest.raises(InvalidMessage, match="dedupe_key"):
        check_use(queue, bad)
    with pytest.raises(InvalidMessage, match="priority"):
        check_use(resolve(name="jobs", routing_policy=routing), bad)
    with pytest.raises(ConfigurationError, match="subscribers"):
        check_use(resolve(name="jobs", routing_policy=routing), Use(dedupe_key="k"))


def test_the_page_has_a_row_for_every_rule() -> None:
    page = compatibility.as_markdown().splitlines()

    assert len(page) == 2 + len(RULES)
    for row, rule in zip(page[2:], RULES, strict=True):
        assert row == f"| {rule.combination} | {rule.verdict} | {rule.sentence} |"
        assert row.count("|") == 4
