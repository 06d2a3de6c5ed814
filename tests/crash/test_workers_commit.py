"""The product's workers, killed between any two steps of each commit policy.

What ``test_commits`` proves of the policies holds for ``Worker`` around them: the next worker finds
the dead one, finishes or undoes what it left, and the promised state is there without anybody's
help.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.workers import Summary, Worker
from tests.crash.commit_cases import KEY, LAYOUTS, POLICIES, effects, opened
from tests.crash.deaths import Deaths, moments
from tests.crash.test_commits import KILLED, left_over, put

WAYS = [
    pytest.param("thread", "together"),
    pytest.param("thread", "apart"),
    # Apart there are more steps, and between them other tasks come to run.
    pytest.param("asyncio", "apart"),
    pytest.param("asyncio", "together", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def deaths() -> Iterator[Deaths]:
    with Deaths() as deaths:
        yield deaths


def check_done_once(folder: Path, policy: str, layout: str) -> None:
    with opened(folder, policy, layout) as queue:
        assert queue.stats().total == 0
        assert effects(folder, policy, layout) == [KEY]
        assert left_over(queue) == []
        queue.put("again", dedupe_key=KEY)
        assert Worker(queue, _not_to_be_run).run(until_empty=True) == Summary(done=1)
        assert effects(folder, policy, layout) == [KEY]


@pytest.mark.parametrize(("kind", "layout"), WAYS)
@pytest.mark.parametrize("policy", POLICIES)
def test_killed_between_any_two_steps_the_next_worker_ends_in_the_promised_state(
    tmp_path: Path, deaths: Deaths, policy: str, layout: str, kind: str
) -> None:
    quiet = put(tmp_path / "quiet", policy, layout)
    assert deaths.deliver(quiet, policy, layout, kind=kind) == 0
    check_done_once(quiet, policy, layout)

    assert len(moments(quiet)) >= 3, "nothing is reached: are these the right failpoints?"
    for place, point in enumerate(moments(quiet)):
        folder = put(tmp_path / f"{place}-{point}", policy, layout)
        assert deaths.deliver(folder, policy, layout, die_at=place, kind=kind) == KILLED

        assert deaths.deliver(folder, policy, layout, kind=kind) == 0

        check_done_once(folder, policy, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_killed_while_a_failure_is_noted_no_effect_stands_and_it_is_a_dead_letter(
    tmp_path: Path, deaths: Deaths, policy: str, layout: str
) -> None:
    quiet = put(tmp_path / "quiet", policy, layout)
    assert deaths.deliver(quiet, policy, layout, fails=True, kind="thread") == 0

    for place, point in enumerate(moments(quiet)):
        folder = put(tmp_path / f"{place}-{point}", policy, layout)
        given: dict[str, Any] = {"fails": True, "kind": "thread"}
        assert deaths.deliver(folder, policy, layout, die_at=place, **given) == KILLED

        assert deaths.deliver(folder, policy, layout, **given) == 0

        with opened(folder, policy, layout) as queue:
            assert effects(folder, policy, layout) == []
            assert (queue.stats().dead, queue.stats().total) == (1, 1)
            assert left_over(queue) == []


@pytest.mark.parametrize(
    ("policy", "layout", "defect"),
    [
        ("outbox", "apart", "intents.Intents.write"),
        ("two-phase", "together", "two_phase.TwoPhaseEffects.decided"),
        ("saga", "together", "saga.SagaEffects.with_ack"),
    ],
)
def test_a_planted_defect_is_caught(
    tmp_path: Path, deaths: Deaths, policy: str, layout: str, defect: str
) -> None:
    quiet = put(tmp_path / "quiet", policy, layout)
    assert deaths.deliver(quiet, policy, layout, kind="thread") == 0

    def kill_at_each() -> None:
        for place, point in enumerate(moments(quiet)):
            folder = put(tmp_path / f"{place}-{point}", policy, layout)
            deaths.deliver(folder, policy, layout, die_at=place, defect=defect, kind="thread")
            assert deaths.deliver(folder, policy, layout, kind="thread") == 0
            check_done_once(folder, policy, layout)

    with pytest.raises(AssertionError):
        kill_at_each()


def _not_to_be_run(value: Any) -> Any:
    raise AssertionError("the handler was run again")
