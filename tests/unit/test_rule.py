"""The worker rule as a table: how a handler ended, and what the store is told."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.errors import (
    HandlerDied,
    HandlerTimeout,
    InvalidArgument,
    InvalidResult,
    WrongType,
)
from localqueue.outcome import (
    Abandoned,
    Ack,
    Cancel,
    Crashed,
    DeadLetter,
    Died,
    Failed,
    Interrupted,
    Outcome,
    Reject,
    Release,
    Retry,
    Settlement,
    Snooze,
    Succeeded,
    describe_error,
)
from localqueue.rule import Backoff, FailurePolicy, settle

STEADY = Backoff(first=2.0, longest=100.0, jitter=0.0)
THREE = FailurePolicy(max_tries=3, backoff=STEADY)
FOR_EVER = FailurePolicy(max_tries=None, backoff=STEADY)
KEEP = FailurePolicy(max_tries=3, backoff=STEADY, dead_letter_on_failure=False)
LATE = FailurePolicy(max_tries=3, backoff=STEADY, release_delay=60.0)
AT_ONCE = FailurePolicy(max_tries=3, backoff=Backoff(0.0))

BOOM = ValueError("boom")
TIMEOUT = HandlerTimeout("the handler ran longer than 5 seconds")
UNFIT = InvalidResult("a set cannot be stored")
MISSING = ModuleNotFoundError("No module named 'gone'")


class Secretive(Exception):
    @property
    def exit_code(self) -> int:
        raise RuntimeError("nobody knows")


class CommandFailed(Exception):
    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


def kept(error: BaseException) -> dict[str, Any] | None:
    return describe_error(error)


@pytest.mark.parametrize(
    ("outcome", "failures", "policy", "told"),
    [
        pytest.param(Succeeded(7), 0, THREE, Ack(7), id="success is acknowledged"),
        pytest.param(Succeeded(None), 9, THREE, Ack(None), id="success after failures too"),
        pytest.param(Interrupted(), 0, THREE, Release(), id="an interrupt charges nothing"),
        pytest.param(Interrupted(), 9, THREE, Release(), id="an interrupt has no budget"),
        pytest.param(
            Failed(BOOM), 0, THREE, Release(2.0, kept(BOOM)), id="a first failure is released"
        ),
        pytest.param(
            Failed(BOOM), 1, THREE, Release(4.0, kept(BOOM)), id="the second waits longer"
        ),
        pytest.param(Failed(BOOM), 2, THREE, DeadLetter(kept(BOOM)), id="the last one is dead"),
        pytest.param(
            Failed(BOOM), 7, THREE, DeadLetter(kept(BOOM)), id="and whatever is beyond it"
        ),
        pytest.param(
            Failed(BOOM),
            50,
            FOR_EVER,
            Release(100.0, kept(BOOM)),
            id="for ever, at the longest wait",
        ),
        pytest.param(
            Failed(BOOM), 2, KEEP, Release(8.0, kept(BOOM)), id="released instead of a dead letter"
        ),
        pytest.param(
            Failed(BOOM), 0, LATE, Release(60.0, kept(BOOM)), id="never before release_delay"
        ),
        pytest.param(Failed(BOOM), 1, AT_ONCE, Release(0.0, kept(BOOM)), id="without any wait"),
        pytest.param(
            Failed(TIMEOUT), 0, THREE, Release(2.0, kept(TIMEOUT)), id="a timeout is a failure"
        ),
        pytest.param(
            Failed(SystemExit(3)),
            0,
            THREE,
            Release(2.0, kept(SystemExit(3))),
            id="so is SystemExit",
        ),
        pytest.param(
            Failed(MISSING), 0, THREE, DeadLetter(kept(MISSING)), id="missing code is final"
        ),
        pytest.param(
            Failed(NameError("x")),
            0,
            FOR_EVER,
            DeadLetter(kept(NameError("x"))),
            id="a missing name",
        ),
        pytest.param(
            Failed(MISSING),
            0,
            KEEP,
            DeadLetter(kept(MISSING)),
            id="even where nothing else is final",
        ),
        pytest.param(
            Failed(UNFIT), 0, THREE, DeadLetter(kept(UNFIT)), id="a result that cannot be stored"
        ),
        pytest.param(
            Failed(Secretive("x")),
            0,
            THREE,
            Release(2.0, kept(Secretive("x"))),
            id="an error that cannot be asked",
        ),
        pytest.param(
            Failed(CommandFailed(127)),
            0,
            THREE,
            DeadLetter(kept(CommandFailed(127))),
            id="a command that is not there",
        ),
        pytest.param(
            Failed(CommandFailed(1)),
            0,
            THREE,
            Release(2.0, kept(CommandFailed(1))),
            id="a command that fails",
        ),
        pytest.param(
            Failed(Reject("no such account")),
            0,
            KEEP,
            DeadLetter(kept(Reject("no such account"))),
            id="rejected",
        ),
        pytest.param(Failed(Snooze(30)), 9, THREE, Release(30.0), id="snoozed, nothing charged"),
        pytest.param(
            Failed(Retry(after=7.0)),
            0,
            THREE,
            Release(7.0, kept(Retry())),
            id="retried when it says",
        ),
        pytest.param(Failed(Retry()), 1, THREE, Release(4.0, kept(Retry())), id="retried as usual"),
        pytest.param(
            Failed(Retry(after=7.0)), 2, THREE, DeadLetter(kept(Retry())), id="a retry has a budget"
        ),
        pytest.param(
            Died(HandlerDied("exit code -9")),
            9,
            THREE,
            Crashed(kept(HandlerDied("exit code -9"))),
            id="a crash is counted by the store",
        ),
        pytest.param(Abandoned(), 9, THREE, Cancel(), id="cancelled while it ran"),
    ],
)
def test_the_rule(outcome: Outcome, failures: int, policy: FailurePolicy, told: Settlement) -> None:
    assert settle(outcome, failures=failures, policy=policy) == told


def test_a_retry_keeps_the_error_it_was_raised_from() -> None:
    retry = Retry(after=1.0)
    retry.__cause__ = BOOM

    told = settle(Failed(retry), failures=0, policy=THREE)

    assert told == Release(1.0, kept(BOOM))


def test_jitter_stretches_a_wait_by_at_most_its_part() -> None:
    backoff = Backoff(first=10.0, jitter=0.5)

    assert [backoff.delay(0, luck) for luck in (0.0, 0.5, 1.0)] == [10.0, 12.5, 15.0]


def test_a_wait_after_very_many_failures_is_the_longest_one() -> None:
    assert Backoff(first=1.0, longest=300.0, factor=100, jitter=0).delay(10**9) == 300.0


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Backoff(first=-1), InvalidArgument),
        (lambda: Backoff(factor=0.5), InvalidArgument),
        (lambda: Backoff(jitter=2), InvalidArgument),
        (lambda: Backoff(jitter="much"), WrongType),  # type: ignore[arg-type]
        (lambda: FailurePolicy(max_tries=0), InvalidArgument),
        (lambda: FailurePolicy(backoff=3), WrongType),  # type: ignore[arg-type]
        (lambda: Snooze(-1), InvalidArgument),
        (lambda: Retry(after="soon"), WrongType),  # type: ignore[arg-type]
    ],
)
def test_numbers_that_mean_nothing_are_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
