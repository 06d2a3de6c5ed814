"""Named moments: nothing happens there unless somebody listens."""

from __future__ import annotations

import pytest

from localqueue import failpoints


def test_without_a_listener_nothing_happens() -> None:
    failpoints.reach("anywhere")


def test_a_listener_hears_every_moment_in_order_until_it_stops() -> None:
    heard: list[str] = []
    with failpoints.listening(heard.append):
        failpoints.reach("one")
        failpoints.reach("two")
    failpoints.reach("three")

    assert heard == ["one", "two"]


def test_what_a_listener_raises_is_raised_at_the_moment() -> None:
    def die(_: str) -> None:
        raise KeyboardInterrupt

    with failpoints.listening(die), pytest.raises(KeyboardInterrupt):
        failpoints.reach("here")
    failpoints.reach("here")


def test_the_listener_before_is_back_afterwards() -> None:
    outer: list[str] = []
    with failpoints.listening(outer.append):
        with failpoints.listening(lambda _: None):
            failpoints.reach("inner")
        failpoints.reach("outer")

    assert outer == ["outer"]
