"""Real processes, killed between any two steps of each commit policy.

After recovery the promised state: the message is gone, its effect stands (of two participants, in
both or in none; of two steps, of both or of none), nothing is left over, and a repetition of the
key is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue import PersistentQueue
from localqueue.message import QueueMessage
from localqueue.stores.protocol import Settled
from localqueue.testing.commit_contract import Worker
from tests.crash.commit_cases import KEY, LAYOUTS, POLICIES, RESULT, effects, opened
from tests.crash.deaths import Deaths, moments

KILLED = -9


@pytest.fixture(scope="module")
def deaths() -> Iterator[Deaths]:
    with Deaths() as deaths:
        yield deaths


def put(folder: Path, policy: str, layout: str) -> Path:
    folder.mkdir(parents=True)
    with opened(folder, policy, layout) as queue:
        (folder / "id").write_text(queue.put("value", dedupe_key=KEY).id)
    return folder


def work_off(queue: PersistentQueue[Any], message_id: str) -> None:
    """As the next worker does: end the lease of the dead, recover, work, and recover again."""
    worker = Worker(queue)
    worker.recover()
    queue.release(message_id)
    while worker.work(_succeed) is not None:
        pass
    worker.recover()


def check_done_once(folder: Path, policy: str, layout: str) -> None:
    with opened(folder, policy, layout) as queue:
        work_off(queue, (folder / "id").read_text())

        assert queue.stats().total == 0
        assert effects(folder, policy, layout) == [KEY]
        assert left_over(queue) == []
        queue.put("again", dedupe_key=KEY)
        again = Worker(queue)
        assert again.work(_not_to_be_run) is Settled.DONE
        assert again.results == [RESULT]
        assert effects(folder, policy, layout) == [KEY]


def left_over(queue: PersistentQueue[Any]) -> list[str]:
    kinds = ("intent", "relay", "saga", "decision")
    left = [record for kind in kinds for record in queue.store.scan_records(kind, now=0.0)]
    return [f"{record.kind} {record.key}" for record in left if b'"abort"' not in record.value]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_killed_between_any_two_steps_it_ends_in_the_promised_state(
    tmp_path: Path, deaths: Deaths, policy: str, layout: str
) -> None:
    quiet = put(tmp_path / "quiet", policy, layout)
    assert deaths.deliver(quiet, policy, layout) == 0
    check_done_once(quiet, policy, layout)

    for place, point in enumerate(moments(quiet)):
        folder = put(tmp_path / f"{place}-{point}", policy, layout)
        assert deaths.deliver(folder, policy, layout, die_at=place) == KILLED

        check_done_once(folder, policy, layout)


@pytest.mark.parametrize("policy", POLICIES)
def test_killed_while_a_failure_is_noted_no_effect_stands(
    tmp_path: Path, deaths: Deaths, policy: str
) -> None:
    quiet = put(tmp_path / "quiet", policy, "together")
    assert deaths.deliver(quiet, policy, "together", fails=True) == 0

    for place, point in enumerate(moments(quiet)):
        folder = put(tmp_path / f"{place}-{point}", policy, "together")
        assert deaths.deliver(folder, policy, "together", die_at=place, fails=True) == KILLED

        with opened(folder, policy, "together") as queue:
            Worker(queue).recover()
            assert effects(folder, policy, "together") == []


@pytest.mark.parametrize(
    ("policy", "layout", "defect"),
    [
        # The ledger does not learn of the success.
        ("local-atomic", "together", "ledger.Ledger.success"),
        # Nobody knows any more what was still to be written when the ledger had it.
        ("outbox", "apart", "intents.Intents.write"),
        ("two-phase", "apart", "intents.Intents.write"),
        # The envelope is not written with the ack.
        ("outbox", "together", "outbox.OutboxEffects.with_ack"),
        # The decision is not written with the ack.
        ("two-phase", "together", "two_phase.TwoPhaseEffects.decided"),
        # The saga is over, and its record does not know.
        ("saga", "together", "saga.SagaEffects.with_ack"),
    ],
)
def test_a_planted_defect_is_caught(
    tmp_path: Path, deaths: Deaths, policy: str, layout: str, defect: str
) -> None:
    quiet = put(tmp_path / "quiet", policy, layout)
    assert deaths.deliver(quiet, policy, layout) == 0

    def kill_at_each() -> None:
        for place, point in enumerate(moments(quiet)):
            folder = put(tmp_path / f"{place}-{point}", policy, layout)
            deaths.deliver(folder, policy, layout, die_at=place, defect=defect)
            check_done_once(folder, policy, layout)

    with pytest.raises(AssertionError):
        kill_at_each()


def _succeed(_: QueueMessage[Any]) -> Any:
    return RESULT


def _not_to_be_run(message: QueueMessage[Any]) -> Any:
    raise AssertionError(f"the handler of message {message.id} was run again")
