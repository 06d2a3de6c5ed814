"""What is told of a message that is stuck, and what is remembered of it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from localqueue.errors import ConfigurationError, InvalidArgument
from localqueue.spark.pipeline.alerts import StuckAlerts
from localqueue.spark.pipeline.alerts.limits import Limits
from localqueue.spark.pipeline.alerts.processor import GRACE_MS, Processor
from localqueue.spark.pipeline.alerts.stages import MICROS, Event, Watched, follow

LIMITS = Limits(waiting={"jobs": 10.0}, running={"jobs": 20.0})
M = "0" * 16 + "00000000000000aa"
OTHER = "0" * 16 + "00000000000000bb"
START = 1_700_000_000


def event(at: float, left: str | None, entered: str | None, **columns: Any) -> Event:
    """So many seconds after the start; its seq follows the time."""
    given: dict[str, Any] = dict.fromkeys(Event._fields)
    given |= {"seq": round(at * 1000), "at": micros(at), "message_id": M}
    return Event(**(given | {"from_state": left, "to_state": entered} | columns))


def micros(at: float) -> int:
    return round((START + at) * MICROS)


def put(at: float, **columns: Any) -> Event:
    return event(at, None, "ready", **columns)


def leased(at: float, attempt: int = 1, **columns: Any) -> Event:
    return event(at, "ready", "inflight", **({"attempt": attempt, "worker": "w1"} | columns))


def ended(at: float, *, began: float, waited: float, entered: str | None = None,
          attempt: int = 1, **columns: Any) -> Event:  # fmt: skip
    lease = {"attempt": attempt, "worker": "w1", "leased_at": micros(began), "waited": waited}
    return event(at, "inflight", entered, **(lease | columns))


class Bucket:
    """A processor with a clock and a state that a test can look into."""

    def __init__(self, limits: Limits = LIMITS, *, there: Any = None, ahead_ms: int = 0) -> None:
        first = [("jobs", Row(messages=there))] if there is not None else None
        self.processor = Processor(limits, ahead_ms)
        self._spark = TwsTester(self.processor, first, timeMode="ProcessingTime")

    def see(self, *events: Event) -> list[tuple[Any, ...]]:
        return self._told(self._spark.test("jobs", [Row(**each._asdict()) for each in events]))

    def wait(self, until: float) -> list[tuple[Any, ...]]:
        return self._told(self._spark.setProcessingTime(round((START + until) * 1000)))

    def _told(self, alerts: Any) -> list[tuple[Any, ...]]:
        return [(a.message_id, a.stage, a.attempt, a.seconds, a.ended) for a in alerts]

    @property
    def is_empty(self) -> bool:
        timers = list(self._spark.handle._timers.getAllKeysWithTimers())
        maps = [self._spark.peekMapState(name, "jobs") for name in ("messages", "timers")]
        return not timers and not any(maps)


# --- waiting --------------------------------------------------------------------------------------
def test_a_message_that_waits_too_long_is_told_of_once() -> None:
    bucket = Bucket()
    assert bucket.see(put(0)) == []

    assert bucket.wait(10) == []
    assert bucket.wait(11) == [(M, "waiting", 1, 11.0, False)]

    assert bucket.wait(1000) == []
    assert bucket.see(leased(1000)) == []
    assert bucket.see(ended(1001, began=1000, waited=1000)) == []
    assert bucket.is_empty


def test_nothing_is_told_of_a_message_that_is_taken_in_time() -> None:
    bucket = Bucket()
    bucket.see(put(0))

    assert bucket.see(leased(9.9)) == []
    assert bucket.wait(20) == []
    assert bucket.see(ended(25, began=9.9, waited=9.9)) == []
    assert bucket.wait(100) == []


def test_what_was_stuck_while_nobody_looked_is_told_of_afterwards() -> None:
    bucket = Bucket()

    alerts = bucket.see(put(0), leased(60), ended(90, began=60, waited=60))

    assert alerts == [(M, "waiting", 1, 60.0, True), (M, "running", 1, 30.0, True)]


def test_the_end_of_a_lease_tells_of_a_wait_whose_beginning_is_unknown() -> None:
    """As of a message that was put off: the journal does not say until when."""
    bucket = Bucket()
    bucket.see(event(0, None, "delayed"))
    assert bucket.wait(500) == []
    bucket.see(leased(501))

    assert bucket.see(ended(502, began=501, waited=40)) == [(M, "waiting", 1, 40.0, True)]


def test_a_message_that_was_put_off_waits_from_when_it_is_due() -> None:
    bucket = Bucket()
    bucket.see(event(0, None, "delayed", due_at=micros(100)))

    assert bucket.wait(110) == []
    assert bucket.wait(111) == [(M, "waiting", 1, 11.0, False)]


def test_a_message_behind_others_of_its_key_waits_from_when_its_turn_has_come() -> None:
    bucket = Bucket()
    bucket.see(event(0, None, "held"))
    assert bucket.wait(60) == []

    bucket.see(event(61, "held", "ready"))

    assert bucket.wait(70) == []
    assert bucket.wait(72) == [(M, "waiting", 1, 11.0, False)]


def test_each_delivery_is_waited_for_anew() -> None:
    bucket = Bucket()
    bucket.see(put(0))
    assert bucket.wait(12) == [(M, "waiting", 1, 12.0, False)]
    bucket.see(leased(13), ended(14, began=13, waited=13, entered="ready"))

    assert bucket.wait(26) == [(M, "waiting", 2, 12.0, False)]


# --- running --------------------------------------------------------------------------------------
def test_a_message_that_runs_too_long_is_told_of_once() -> None:
    bucket = Bucket()
    bucket.see(put(0), leased(1))

    assert bucket.wait(21) == []
    assert bucket.wait(22) == [(M, "running", 1, 21.0, False)]

    assert bucket.see(ended(30, began=1, waited=1)) == []


def test_a_lease_whose_beginning_was_not_seen_is_judged_by_its_end() -> None:
    alerts = Bucket().see(ended(100, began=50, waited=11, entered="ready", attempt=3))

    assert alerts == [(M, "waiting", 3, 11.0, True), (M, "running", 3, 50.0, True)]


def test_an_alert_about_waiting_does_not_hide_one_about_running() -> None:
    alerts = follow("jobs", Watched("ready", 0, 1, told=True), ended(100, began=50, waited=11),
                    LIMITS)[1]  # fmt: skip

    assert [alert.stage for alert in alerts] == ["waiting", "running"]


def test_only_stages_that_have_a_limit_are_told_of() -> None:
    bucket = Bucket(Limits(running={"jobs": 20.0}))

    assert bucket.see(put(0)) == []
    assert bucket.wait(1000) == []
    assert bucket.see(leased(1000)) == []
    assert bucket.wait(1022) == [(M, "running", 1, 22.0, False)]


# --- what is remembered ---------------------------------------------------------------------------
@pytest.mark.parametrize("last", [
    leased(5), ended(6, began=5, waited=5), ended(6, began=5, waited=5, entered="dead"),
])  # fmt: skip
def test_a_message_is_forgotten_when_it_ends(last: Event) -> None:
    bucket = Bucket()
    bucket.see(put(0))
    bucket.see(leased(5))

    bucket.see(last)

    assert bucket.is_empty == (last.from_state == "inflight")


def test_what_comes_and_goes_within_a_batch_is_never_remembered() -> None:
    bucket = Bucket()

    bucket.see(put(0), leased(1), ended(2, began=1, waited=1))

    assert bucket.is_empty


def test_events_are_followed_in_their_order_however_they_come() -> None:
    bucket = Bucket()

    assert bucket.see(ended(3, began=1, waited=1), put(0), leased(1)) == []
    assert bucket.is_empty


def test_a_purge_ends_all_messages_and_tells_of_those_that_were_stuck() -> None:
    bucket = Bucket()
    bucket.see(put(0), put(9, message_id=OTHER))

    alerts = bucket.see(event(10.5, "ready", None, message_id=None))

    assert alerts == [(M, "waiting", 1, 10.5, True)]
    assert bucket.is_empty
    assert bucket.wait(100) == []


def test_a_purge_ends_nothing_that_has_ended_before_it() -> None:
    bucket = Bucket()
    bucket.see(put(0))

    purge = event(100, "ready", None, message_id=None)
    assert bucket.see(leased(5), ended(6, began=5, waited=5), purge) == []


def test_what_was_put_in_the_batch_of_a_purge_is_ended_by_it_only_if_it_came_before() -> None:
    bucket = Bucket()

    bucket.see(put(0), event(1, "ready", None, message_id=None), put(2, message_id=OTHER))

    assert bucket.wait(100) == [(OTHER, "waiting", 1, 98.0, False)]


def test_many_messages_of_a_second_share_a_timer() -> None:
    bucket = Bucket()
    ids = [f"{n:032x}" for n in range(50)]
    bucket.see(*(put(n / 1000, message_id=each) for n, each in enumerate(ids)))
    assert len(list(bucket._spark.handle._timers.listTimers("jobs"))) <= 2

    bucket.see(*(leased(2 + n / 1000, message_id=each) for n, each in enumerate(ids[:20])))

    assert sorted(alert[0] for alert in bucket.wait(13)) == ids[20:]


def test_the_messages_that_are_there_at_the_start_are_watched() -> None:
    there = [
        Row(message_id=M, state="ready", since=micros(-100), attempt=2),
        Row(message_id=OTHER, state="inflight", since=micros(0), attempt=1),
    ]
    bucket = Bucket(there=there)

    assert bucket.wait(1) == [(M, "waiting", 2, 101.0, False)]
    assert bucket.see(ended(2, began=0, waited=1, message_id=OTHER)) == []
    assert bucket.wait(200) == []


def test_an_alert_waits_a_moment_for_the_event_that_makes_it_needless() -> None:
    bucket = Bucket()
    bucket.see(put(0))
    assert bucket.wait(10 + GRACE_MS / 1000 - 0.001) == []

    assert bucket.see(leased(9.99)) == []
    assert bucket.wait(12) == []


def test_timers_follow_the_time_of_the_store_when_the_wall_clock_was_set() -> None:
    """The wall clock is an hour behind the store."""
    bucket = Bucket(ahead_ms=3_600_000)
    bucket.see(put(3600))

    assert bucket.wait(10) == []
    assert bucket.wait(11) == [(M, "waiting", 1, 11.0, False)]


def test_other_limits_count_for_messages_that_are_known_already() -> None:
    bucket = Bucket()
    bucket.see(put(0), put(0, message_id=OTHER, seq=1))

    bucket.processor._limits = Limits(waiting={"jobs": 100.0})
    assert bucket.wait(50) == []
    assert sorted(bucket.wait(101)) == [
        (M, "waiting", 1, 101.0, False),
        (OTHER, "waiting", 1, 101.0, False),
    ]


# --- what cannot be meant -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "nothing is to be watched"),
        ({"waiting": {"jobs": 0}}, "number of seconds"),
        ({"running": {"jobs": True}}, "number of seconds"),
        ({"waiting": {"jobs": float("nan")}}, "number of seconds"),
        ({"waiting": {"alerts": 5.0}}, "name another queue"),
    ],
)
def test_alerts_that_cannot_be_meant_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        StuckAlerts("sqlite:////nowhere", "alerts", checkpoint="x", **given)


def test_a_name_that_no_queue_can_have_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        StuckAlerts("sqlite:////nowhere", "", checkpoint="x", waiting={"jobs": 5.0})
