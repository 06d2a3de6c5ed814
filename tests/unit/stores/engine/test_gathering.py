"""Who comes first waits for those who were there the last time, and the last of them leads."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from localqueue.stores.sqlite import group_commit
from localqueue.stores.sqlite.group_commit import Call, GroupCommit, Nobody, finish
from tests.unit.stores.engine.phrases import SOON, until
from tests.unit.stores.phrases import PATIENCE


@pytest.fixture(autouse=True)
def long_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gathers waits as long as the test says."""
    monkeypatch.setattr(group_commit, "LONGEST_GATHERING", PATIENCE)


NOT_INTERRUPTED = frozenset(
    number
    for number, line in enumerate(Path(group_commit.__file__).read_text().splitlines(), 1)
    if line.lstrip().startswith("with ")
)
"""The interpreter looks for signals neither as it enters such a block nor as it leaves it."""


class Desk:
    """Where calls are answered with their own names; ``groups`` are those that came together."""

    def __init__(self, *, gathers: bool = True, expected: int = 1, took: float = PATIENCE) -> None:
        self.groups: list[list[str]] = []
        self.led_by: list[int] = []
        self.opened = threading.Event()
        """Until it is, whoever leads stays at work."""
        self.opened.set()
        self.fails = False
        self.at_work = self.most_at_work = 0
        self.commits = GroupCommit(self._work, lambda _: None, gathers=gathers)
        self.commits._expected, self.commits._took = expected, took

    def call(self, name: str) -> Call[str]:
        return Call(lambda _: name, 0.0, time.monotonic() + PATIENCE)

    def start(self, name: str) -> threading.Thread:
        thread = threading.Thread(target=self.commits.run, args=(self.call(name),))
        thread.start()
        return thread

    def start_gathering(self, name: str) -> threading.Thread:
        thread = self.start(name)
        until(lambda: self.commits._gatherer is not None)
        return thread

    def start_following(self, name: str) -> threading.Thread:
        lined_up = len(self.commits._waiting) + 1
        thread = self.start(name)
        until(lambda: len(self.commits._waiting) == lined_up)
        return thread

    def _work(self, own: Call[Any], take: Callable[[], list[Call[Any]]]) -> None:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            calls = take()
            self.led_by.append(threading.get_ident())
            for call in calls:
                call.answer = call.verb(None)  # type: ignore[arg-type]
            if self.fails:
                raise OSError("the disk is gone")
            self.groups.append([call.answer for call in calls])
            assert self.opened.wait(PATIENCE)
            others = [call for call in calls if call is not own]
            try:
                finish(others)
            except KeyboardInterrupt:
                finish(others)
                raise
        finally:
            self.at_work -= 1


def test_the_last_of_those_who_were_expected_leads_all_of_them() -> None:
    desk = Desk(expected=3)
    threads = [desk.start_gathering("a"), desk.start_following("b")]

    assert desk.commits.run(desk.call("c")) == "c"

    for thread in threads:
        thread.join(SOON)
    assert desk.groups == [["c", "a", "b"]]
    assert desk.led_by == [threading.get_ident()]


def test_who_waits_in_vain_leads_those_who_came_and_expects_no_more_the_next_time() -> None:
    desk = Desk(expected=5, took=0.2)
    threads = [desk.start_gathering("a"), desk.start_following("b")]

    for thread in threads:
        thread.join(SOON)

    assert desk.groups == [["a", "b"]]
    assert desk.commits._expected == 2


def test_who_is_alone_waits_for_nobody() -> None:
    desk = Desk()

    for name in ("a", "b"):
        desk.commits.run(desk.call(name))

    assert desk.groups == [["a"], ["b"]]
    assert desk.commits._expected == 1


def test_where_nothing_is_waited_for_nobody_gathers() -> None:
    desk = Desk(gathers=False)
    holder = desk.commits.hold(time.monotonic() + PATIENCE)
    threads = [desk.start_following(name) for name in "abc"]

    desk.commits.let_go(holder)

    for thread in threads:
        thread.join(SOON)
    assert desk.groups == [["a", "b", "c"]]
    assert desk.commits._expected == 1


def test_who_is_passed_the_lead_gathers_as_well() -> None:
    """It lined up while others were at work, who are about to come again."""
    desk = Desk(expected=2)
    holder = desk.commits.hold(time.monotonic() + PATIENCE)
    first = desk.start_following("a")
    desk.commits.let_go(holder)
    until(lambda: desk.commits._gatherer is not None)

    desk.commits.run(desk.call("b"))

    first.join(SOON)
    assert desk.groups == [["b", "a"]]


def test_one_who_wants_nobody_to_work_waits_for_no_others_and_leads_none() -> None:
    desk = Desk(expected=2)
    leader = desk.commits.hold(time.monotonic() + PATIENCE)
    desk.commits.let_go(leader)
    gathering = desk.start_gathering("a")
    with pytest.raises(Exception, match="busy"):
        desk.commits.hold(time.monotonic() + 0.01)

    desk.commits.run(desk.call("b"))

    gathering.join(SOON)
    assert desk.groups == [["b", "a"]]


def test_who_is_interrupted_while_it_gathers_passes_the_lead_on() -> None:
    desk = Desk(expected=5)
    ended = threading.Event()

    class Interrupted(Call[str]):
        def wait(self, timeout: float) -> bool:
            assert ended.wait(PATIENCE)
            raise KeyboardInterrupt

    def run_interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            desk.commits.run(Interrupted(lambda _: "a", 0.0, time.monotonic() + PATIENCE))

    interrupted = threading.Thread(target=run_interrupted)
    interrupted.start()
    until(lambda: desk.commits._gatherer is not None)
    follower = desk.start_following("b")
    desk.commits._took = 0.01

    ended.set()

    for thread in (interrupted, follower):
        thread.join(SOON)
    assert desk.groups == [["b"]]


def test_who_gathers_hears_of_calls_that_no_thread_waits_for() -> None:
    desk = Desk(expected=3)
    gathering = desk.start_gathering("a")

    for name in ("b", "c"):
        call = Call(partial(_named, name), 0.0, time.monotonic() + PATIENCE, listener=Nobody())
        desk.commits.submit(call)

    gathering.join(SOON)
    assert desk.groups == [["a", "b", "c"]]
    desk.commits.stop()


def test_who_comes_while_the_one_who_has_gathered_is_at_work_lines_up() -> None:
    """It was a call without a thread that ended the gathering."""
    desk = Desk(expected=2)
    desk.opened.clear()
    gathering = desk.start_gathering("a")
    listening = Call(partial(_named, "b"), 0.0, time.monotonic() + PATIENCE, listener=Nobody())
    desk.commits.submit(listening)
    until(lambda: bool(desk.groups))

    late = desk.start_following("c")
    desk.opened.set()

    for thread in (gathering, late):
        thread.join(SOON)
    assert desk.groups == [["a", "b"], ["c"]]
    assert desk.most_at_work == 1
    desk.commits.stop()


def test_who_was_told_that_all_are_there_leads_however_late_it_wakes() -> None:
    desk, late = Desk(expected=2), threading.Event()
    answers: list[str] = []

    class SlowToWake(Call[str]):
        def wait(self, timeout: float) -> bool:
            woken = super().wait(timeout)
            assert late.wait(PATIENCE)
            return woken

    slow = SlowToWake(lambda _: "a", 0.0, time.monotonic() + PATIENCE)
    gathering = threading.Thread(target=lambda: answers.append(desk.commits.run(slow)))
    gathering.start()
    until(lambda: desk.commits._gatherer is not None)
    listening = Call(partial(_named, "b"), 0.0, time.monotonic() + PATIENCE, listener=Nobody())
    desk.commits.submit(listening)

    follower = desk.start_following("c")
    late.set()

    for thread in (gathering, follower):
        thread.join(SOON)
    assert (answers, desk.groups) == (["a"], [["a", "b", "c"]])
    desk.commits.stop()


def test_nobody_is_waited_for_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the last group took: it may have waited for other processes."""
    monkeypatch.setattr(group_commit, "LONGEST_GATHERING", 0.01)
    desk = Desk(expected=2, took=PATIENCE)
    before = time.monotonic()

    desk.commits.run(desk.call("a"))

    assert time.monotonic() - before < PATIENCE / 2


# --- who was answered together ----------------------------------------------------------------
def test_one_who_has_gone_wakes_nobody_and_the_next_is_woken_all_the_same() -> None:
    calls = [Call(partial(_named, name), 0.0, 0.0) for name in "abcd"]
    for call in calls:
        call.line_up()
    for gone in calls[:3:2]:
        gone.gone = True

    finish(calls)

    assert calls[1].wait(0.0)
    assert not calls[3].wait(0.0)
    calls[1].wake_successor()
    assert calls[3].wait(0.0)


def test_the_main_thread_is_woken_last_and_keeps_nobody_waiting() -> None:
    """It may run the handler of a signal, which waits for one of the others."""
    calls = [Call(partial(_named, name), 0.0, 0.0) for name in "ab"]
    calls[0].line_up()
    other = threading.Thread(target=calls[1].line_up)
    other.start()
    other.join(SOON)

    finish(calls)

    assert not calls[0].wait(0.0)
    assert calls[1].wait(0.0)
    calls[1].wake_successor()
    assert calls[0].wait(0.0)


def test_one_that_nobody_wakes_looks_whether_it_is_finished_after_its_deadline() -> None:
    desk = Desk()
    desk.opened.clear()
    leader = desk.start("a")
    until(lambda: bool(desk.groups))
    call = Call(lambda _: "b", 0.0, time.monotonic() + 0.05)
    follower = threading.Thread(target=desk.commits.run, args=(call,))
    follower.start()
    until(lambda: call in desk.commits._waiting)
    with desk.commits._mutex:
        # Taken, answered, and forgotten by the one who was to wake it.
        desk.commits._waiting.remove(call)
    call.answer, call.finished = "b", True

    follower.join(SOON)

    assert not follower.is_alive()
    desk.opened.set()
    leader.join(SOON)


@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
@pytest.mark.parametrize("role", ["gathers", "follows", "comes last"])
def test_an_interrupt_at_any_step_is_for_one_call_and_all_others_are_done_once(
    role: str, fails: bool
) -> None:
    step, interrupted = 0, True
    while interrupted:
        interrupted = _played(role, step, fails=fails)
        step += 1

    assert step > 10


def _played(interrupted: str, step: int, *, fails: bool) -> bool:
    """Three who come one after the other; whether one of them came to the step to interrupt."""
    desk = Desk(expected=3, took=0.02)
    desk.fails = fails
    answers: dict[str, str] = {}

    def run(role: str) -> None:
        if role == interrupted:
            sys.settrace(_interrupting(step))
        try:
            answers[role] = desk.commits.run(desk.call(role))
        except KeyboardInterrupt:
            answers[role] = "interrupted"
        except OSError:
            answers[role] = "failed"
        finally:
            sys.settrace(None)

    threads = []
    for role in ("gathers", "follows", "comes last"):
        threads.append(threading.Thread(target=run, args=(role,), daemon=True))
        threads[-1].start()
        _let_it_line_up(desk, len(threads) - 1)
    for thread in threads:
        thread.join(PATIENCE)

    done = Counter(name for group in desk.groups for name in group)
    for role in ("gathers", "follows", "comes last"):
        own = "failed" if fails else role
        assert answers[role] in ((own, "interrupted") if role == interrupted else (own,))
        assert done[role] == (not fails) or (role == interrupted and done[role] == 0)
    assert desk.most_at_work == 1
    desk.commits._expected, desk.fails = 1, False
    assert desk.commits.run(desk.call("later")) == "later"
    return answers[interrupted] == "interrupted"


def _let_it_line_up(desk: Desk, others: int) -> None:
    """Or whatever becomes of one that is interrupted."""
    deadline = time.monotonic() + 0.01
    while time.monotonic() < deadline:
        if desk.commits._gatherer is not None and len(desk.commits._waiting) == others:
            return
        time.sleep(0.0002)


def _interrupting(step: int) -> Callable[..., Any]:
    """A trace function that raises at one line of the module, counted as they are run."""
    left = step

    def at_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "line" and frame.f_lineno not in NOT_INTERRUPTED:
            left -= 1
            if left == -1:
                raise KeyboardInterrupt
        return at_line

    def at_call(frame: FrameType, event: str, _: object) -> Any:
        return at_line if frame.f_code.co_filename == group_commit.__file__ else None

    return at_call


def _named(name: str, _: object) -> str:
    return name
