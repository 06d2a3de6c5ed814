"""Who comes first waits for those who were there the last time, and the last of them leads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from localqueue.stores.sqlite.group_commit import Call, GroupCommit, Nobody
from tests.unit.stores.engine.phrases import SOON, until
from tests.unit.stores.phrases import PATIENCE


class Desk:
    """Where calls are answered with their own names; ``groups`` are those that came together."""

    def __init__(self, *, gathers: bool = True, expected: int = 1, took: float = PATIENCE) -> None:
        self.groups: list[list[str]] = []
        self.led_by: list[int] = []
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
        calls = take()
        self.led_by.append(threading.get_ident())
        for call in calls:
            call.answer = call.verb(None)  # type: ignore[arg-type]
            if call is not own:
                call.finish()
        self.groups.append([call.answer for call in calls])


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


def _named(name: str, _: object) -> str:
    return name
