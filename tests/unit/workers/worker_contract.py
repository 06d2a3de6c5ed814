"""What every kind of worker does, wherever its handlers run."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from localqueue.errors import StoreClosed
from localqueue.policies import AtMostOnceDelivery, OrderingKeys
from localqueue.queue import PersistentQueue
from localqueue.resilience import CircuitBreaker, RateLimit
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import Cancelled
from localqueue.workers.summary import Summary
from localqueue.workers.worker import Kind, Worker
from tests.unit.queue.phrases import kinds
from tests.unit.workers.phrases import Stage, dead_errors, eventually, working

ASKS = ("lease", "settle_and_lease", "next_due", "waiting")


def counted_calls(monkeypatch: pytest.MonkeyPatch, store: type[Any]) -> Counter[str]:
    """How often each of these questions is asked from now on, of any store of this class."""
    asked: Counter[str] = Counter()

    def counting(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any, **options: Any) -> Any:
            asked[name] += 1
            return ask(*given, **options)

        return count

    for name in ASKS:
        monkeypatch.setattr(store, name, counting(name, getattr(store, name)))
    return asked


class WorkerContract:
    """Subclasses say the kind, and the handler from ``acts`` that fits it."""

    kind: ClassVar[Kind]
    handler: ClassVar[Callable[[Any], Any]]

    def worker(self, queues: Any, **options: Any) -> Worker:
        options = {"backoff": 0.0} | options
        return Worker(queues, type(self).handler, kind=self.kind, **options)

    # --- the plain way --------------------------------------------------------------------------
    @pytest.mark.parametrize("concurrency", [1, 4])
    def test_every_message_is_handled_once_and_acknowledged(
        self, stage: Stage, concurrency: int
    ) -> None:
        queue = stage.queue()
        queue.put_many([stage.act(name=n) for n in range(50)])

        summary = self.worker(queue, concurrency=concurrency).run(until_empty=True)

        assert summary == Summary(done=50)
        assert sorted(stage.names()) == list(range(50))
        assert queue.stats().total == 0

    def test_one_runner_keeps_the_order(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put_many([stage.act(name=n) for n in range(30)])

        self.worker(queue).run(until_empty=True)

        assert stage.names() == list(range(30))

    def test_a_worker_without_a_file_does_the_same(self, stage: Stage) -> None:
        with PersistentQueue[Any]("jobs", store=MemoryQueueStore()) as queue:
            queue.put_many([stage.act(name=n) for n in range(3)])

            assert self.worker(queue).run(until_empty=True).done == 3

        assert stage.names() == [0, 1, 2]

    def test_an_idle_worker_wakes_for_a_put(self, stage: Stage) -> None:
        queue = stage.queue()

        with working(self.worker(queue)):
            queue.put(stage.act(name="first"))
            eventually(lambda: stage.names() == ["first"])
            eventually(lambda: queue.stats().total == 0)
            queue.put(stage.act(name="second"))
            eventually(lambda: stage.names() == ["first", "second"])

    def test_an_idle_worker_asks_the_store_once_a_second(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = stage.queue()
        asked = counted_calls(monkeypatch, type(stage.store))

        with working(self.worker(queue)):
            queue.put(stage.act(name="first"))
            eventually(lambda: stage.names() == ["first"])
            eventually(lambda: queue.stats().total == 0)
            asked.clear()
            # Here the time itself is what is looked at.
            time.sleep(2.0)
            leases, others = asked["lease"] + asked["settle_and_lease"], dict(asked)

        assert 1 <= leases <= 3, others
        assert asked["next_due"] <= 3, others
        assert asked["waiting"] == 0, others

    def test_an_idle_worker_takes_a_message_whose_lease_has_ended(self, stage: Stage) -> None:
        queue = stage.queue(lease_timeout=0.5)
        queue.put(stage.act(name="left behind"))
        assert queue.get_message().value["name"] == "left behind"

        with working(self.worker(queue)) as worker:
            assert stage.names("began") == []
            eventually(lambda: worker.summary.done)

        assert stage.names() == ["left behind"]

    def test_several_queues_share_a_worker(self, stage: Stage) -> None:
        queues = [stage.queue(name) for name in ("one", "two", "three")]
        for queue in queues:
            queue.put_many([stage.act(name=queue.name) for _ in range(5)])

        summary = self.worker(queues).run(until_empty=True)

        assert summary.done == 15
        assert sorted(stage.names()) == sorted(["one", "two", "three"] * 5)

    def test_queues_that_differ_in_their_leases_share_a_worker(self, stage: Stage) -> None:
        queues = [stage.queue("long", lease_timeout=60), stage.queue("short", lease_timeout=5)]
        for queue in queues:
            queue.put_many([stage.act(name=queue.name) for _ in range(3)])

        assert self.worker(queues).run(until_empty=True).done == 6

    def test_delayed_messages_are_waited_for(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act(name="later"), delay=0.2)
        queue.put(stage.act(name="now"))

        summary = self.worker(queue).run(until_empty=True)

        assert summary.done == 2
        assert stage.names() == ["now", "later"]

    def test_messages_behind_their_key_are_waited_for(self, stage: Stage) -> None:
        queue = stage.queue(ordering_policy=OrderingKeys())
        for n in range(6):
            queue.put(stage.act(name=n), ordering_key="one key")

        summary = self.worker(queue, concurrency=3).run(until_empty=True)

        assert summary.done == 6
        assert stage.names() == list(range(6))

    def test_the_worker_is_named_in_the_lease(self, stage: Stage) -> None:
        queue = stage.queue()
        message = queue.put(stage.act("who"))

        self.worker(queue, worker_id="w1").run(until_empty=True)

        assert stage.told()[1] == (None, f"{message.id} w1 1")
        assert "w1" in queue.stats().last_seen_by_worker_id

    # --- failures -------------------------------------------------------------------------------
    def test_a_failure_is_delivered_again(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act("raise once"))

        summary = self.worker(queue).run(until_empty=True)

        assert summary == Summary(done=1, failed=1)

    def test_the_last_failure_makes_a_dead_letter_with_its_error(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act("raise"))
        queue.put(stage.act(name="after"))

        summary = self.worker(queue, max_tries=3).run(until_empty=True)

        assert summary == Summary(done=1, failed=2, dead=1)
        (dead,) = queue.dead_letters()
        assert (dead.failures, dead.attempts) == (3, 3)
        assert dead.last_error is not None
        assert (dead.last_error["type"], dead.last_error["message"]) == ("ValueError", "boom")

    def test_the_tries_of_the_queue_are_those_of_its_worker(self, stage: Stage) -> None:
        queue = stage.queue(retry_defaults={"max_tries": 2})
        queue.put(stage.act("raise"))

        assert self.worker(queue).run(until_empty=True) == Summary(failed=1, dead=1)

    def test_a_wait_follows_a_failure(self, stage: Stage) -> None:
        queue = stage.queue()
        message = queue.put(stage.act("raise"))

        with working(self.worker(queue, backoff=60.0)):
            eventually(lambda: (found := queue.inspect(message.id)) and found.failures == 1)
            found = queue.inspect(message.id)

        assert found is not None
        assert 55 < found.available_at - time.time() <= 60

    def test_released_instead_of_dead_lettered(self, stage: Stage) -> None:
        queue = stage.queue()
        message = queue.put(stage.act("raise"))

        with working(self.worker(queue, max_tries=1, dead_letter_on_failure=False)):
            eventually(lambda: (found := queue.inspect(message.id)) and found.failures >= 3)

        assert queue.stats().dead == 0

    @pytest.mark.parametrize(
        ("do", "error"), [("exit", "SystemExit"), ("end of generator", "GeneratorExit")]
    )
    def test_what_ends_programs_is_a_failure_like_others(
        self, stage: Stage, do: str, error: str
    ) -> None:
        queue = stage.queue()
        queue.put(stage.act(do))
        queue.put(stage.act(name="after"))

        summary = self.worker(queue, max_tries=1).run(until_empty=True)

        assert summary == Summary(done=1, dead=1)
        assert dead_errors(queue) == [error]

    def test_missing_code_is_not_tried_again(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act("missing code"))

        assert self.worker(queue).run(until_empty=True) == Summary(dead=1)

    def test_a_handler_may_ask_for_another_try(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act("retry at once"))

        summary = self.worker(queue, backoff=3600.0).run(until_empty=True)

        assert summary == Summary(done=1, failed=1)

    def test_a_handler_may_reject_a_message(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act("reject"))

        assert self.worker(queue).run(until_empty=True) == Summary(dead=1)
        assert dead_errors(queue) == ["Reject"]

    def test_a_handler_may_put_a_message_off_uncharged(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act("snooze"))

        summary = self.worker(queue, max_tries=1).run(until_empty=True)

        assert summary == Summary(done=1, snoozed=1)

    def test_a_keyboard_interrupt_ends_the_worker_and_charges_nothing(self, stage: Stage) -> None:
        queue = stage.queue()
        message = queue.put(stage.act("interrupt"))

        with pytest.raises(KeyboardInterrupt):
            self.worker(queue).run(handle_signals=False)

        found = queue.inspect(message.id)
        assert found is not None
        assert (found.state, found.failures, found.crashes) == ("ready", 0, 0)

    # --- time, and changes of mind --------------------------------------------------------------
    def test_a_handler_that_takes_too_long_has_failed(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act(until=stage.gate("never")))
        queue.put(stage.act(name="after"))

        summary = self.worker(queue, timeout=0.1, max_tries=1).run(until_empty=True)

        assert summary == Summary(done=1, dead=1, returned=summary.returned)
        assert dead_errors(queue) == ["HandlerTimeout"]

    def test_a_handler_that_does_not_listen_has_failed_and_its_place_is_taken(
        self, stage: Stage
    ) -> None:
        queue = stage.queue()
        endless, both = stage.gate("endless"), stage.gate("both")
        queue.put(stage.act(name="endless", until=endless, listens=False, swallows=True))

        with working(self.worker(queue, concurrency=2, timeout=0.5, max_tries=1)) as worker:
            eventually(lambda: dead_errors(queue) == ["HandlerTimeout"])
            queue.put_many([stage.act(name=n, until=both) for n in range(2)])
            eventually(lambda: len(stage.names("began")) == 3, "a place is gone")
            both.touch()
            eventually(lambda: worker.summary.done == 2)
            endless.touch()

        assert worker.summary == Summary(done=2, dead=1, returned=worker.summary.returned)
        assert (queue.stats().dead, queue.stats().total) == (1, 1)

    def test_a_handler_that_does_not_listen_keeps_no_worker_from_stopping(
        self, stage: Stage
    ) -> None:
        queue = stage.queue()
        endless = stage.gate("endless")
        message = queue.put(stage.act(name="endless", until=endless, listens=False, swallows=True))
        worker = self.worker(queue, timeout=0.1, max_tries=2, backoff=3600.0).start()
        eventually(lambda: (found := queue.inspect(message.id)) and found.failures == 1)

        worker.stop()
        assert worker.join(5)

        endless.touch()
        found = queue.inspect(message.id)
        assert found is not None
        assert (found.state, found.failures, worker.summary) == ("ready", 1, Summary(failed=1))

    def test_a_running_message_can_be_cancelled(self, stage: Stage) -> None:
        queue = stage.queue(lease_timeout=0.3)
        message = queue.put(stage.act(until=stage.gate("never")))

        with working(self.worker(queue)) as worker:
            eventually(lambda: stage.names("began"))
            assert queue.cancel(message.id) is Cancelled.ASKED
            eventually(lambda: queue.stats().total == 0)

        assert worker.summary == Summary(cancelled=1)
        assert queue.history(message.id)[-1].kind == "cancelled"

    def test_a_handler_that_lost_its_lease_has_its_result_dropped(self, stage: Stage) -> None:
        queue = stage.queue(lease_timeout=0.3)
        message = queue.put(stage.act(until=stage.gate("never")))

        with working(self.worker(queue)) as worker:
            eventually(lambda: stage.names("began"))
            # An operator's word acts on whatever lease there is, and makes its receipt stale.
            assert queue.release(message.id, delay=3600.0)
            eventually(lambda: worker.summary.lost)

        assert worker.summary == Summary(lost=1)
        found = queue.inspect(message.id)
        assert found is not None
        assert (found.state, found.attempts) == ("ready", 1)

    def test_progress_is_in_the_history(self, stage: Stage) -> None:
        queue = stage.queue()
        gate = stage.gate()
        message = queue.put(stage.act(reports=[0.5, "nearly there"], until=gate))
        heard: list[tuple[str, str]] = []

        with working(self.worker(queue, on_progress=lambda m, note: heard.append((m.id, note)))):
            eventually(lambda: any(e.kind == "extended" for e in queue.history(message.id)))
            gate.touch()
            eventually(lambda: queue.stats().total == 0)

        notes = [event.detail for event in queue.history(message.id) if event.kind == "extended"]
        assert notes[-1] == {"note": "nearly there"}
        assert heard == [(message.id, "50%"), (message.id, "nearly there")]

    # --- leases ---------------------------------------------------------------------------------
    def test_a_lease_is_held_while_its_handler_runs(self, stage: Stage) -> None:
        queue = stage.queue(lease_timeout=0.3)
        gate = stage.gate()
        message = queue.put(stage.act(until=gate))

        with working(self.worker(queue)) as worker:
            eventually(lambda: stage.names("began"))
            eventually(lambda: kinds(queue.history(message.id)).count("extended") >= 4)
            assert queue.qsize() == 0
            gate.touch()
            eventually(lambda: worker.summary.done)

        assert stage.names("began") == [None]

    def test_what_was_leased_ahead_is_given_back_when_a_handler_takes_long(
        self, stage: Stage
    ) -> None:
        queue = stage.queue()
        gate = stage.gate()
        queue.put_many([stage.act(name=n) for n in range(20)])
        queue.put(stage.act(name="slow", until=gate))
        queue.put_many([stage.act(name=n) for n in range(20, 40)])

        with working(self.worker(queue)) as worker:
            eventually(lambda: "slow" in stage.names("began"))
            eventually(lambda: queue.stats().inflight == 1)
            ready = queue.stats().ready
            gate.touch()
            eventually(lambda: queue.stats().total == 0)

        assert ready == 20
        assert sorted(stage.names(), key=str) == sorted([*range(40), "slow"], key=str)
        assert worker.summary == Summary(done=41, returned=worker.summary.returned)

    def test_at_most_once_takes_no_more_than_it_runs(self, stage: Stage) -> None:
        queue = stage.queue(delivery_policy=AtMostOnceDelivery())
        gate = stage.gate()
        queue.put_many([stage.act(name=n, until=gate) for n in range(5)])

        with working(self.worker(queue, concurrency=2)):
            eventually(lambda: len(stage.names("began")) == 2)
            left = queue.stats()
            gate.touch()
            eventually(lambda: len(stage.names()) == 5)

        assert (left.ready, left.inflight, left.total) == (3, 0, 3)

    def test_at_most_once_never_tries_again(self, stage: Stage) -> None:
        queue = stage.queue(delivery_policy=AtMostOnceDelivery())
        queue.put_many([stage.act("raise"), stage.act(name="after")])

        summary = self.worker(queue).run(until_empty=True)

        assert summary.done == 1
        assert stage.names("began") == [None, "after"]
        assert queue.stats().total == 0

    # --- pace -----------------------------------------------------------------------------------
    def test_an_interval_is_kept_between_starts(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put_many([stage.act(name=n) for n in range(4)])

        began = time.monotonic()
        summary = self.worker(queue, min_interval=0.05, concurrency=2).run(until_empty=True)

        assert summary.done == 4
        assert time.monotonic() - began >= 0.15

    def test_a_rate_is_kept(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put_many([stage.act(name=n) for n in range(5)])

        began = time.monotonic()
        self.worker(queue, rate_limit=RateLimit(2, per=0.1)).run(until_empty=True)

        assert time.monotonic() - began >= 0.2
        assert stage.names() == list(range(5))

    def test_failures_in_a_row_make_a_pause(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put_many([stage.act("raise", name=n) for n in range(4)])

        began = time.monotonic()
        breaker = CircuitBreaker(failures=3, cooldown=0.3)
        self.worker(queue, max_tries=1, circuit_breaker=breaker).run(until_empty=True)

        assert time.monotonic() - began >= 0.3
        assert stage.names("began") == list(range(4))

    # --- stopping -------------------------------------------------------------------------------
    def test_a_worker_that_stops_lets_its_handlers_end(self, stage: Stage) -> None:
        queue = stage.queue()
        gate = stage.gate()
        queue.put(stage.act(name="running", until=gate, listens=False))
        queue.put(stage.act(name="waiting"))
        worker = self.worker(queue).start()
        eventually(lambda: stage.names("began"))

        worker.stop()
        queue.put(stage.act(name="too late"))
        assert not worker.join(0.2)
        gate.touch()
        assert worker.join(20)

        assert stage.names() == ["running"]
        assert worker.summary == Summary(done=1, returned=worker.summary.returned)
        assert (queue.stats().ready, queue.stats().inflight) == (2, 0)

    def test_what_does_not_end_in_time_is_given_back_uncharged(self, stage: Stage) -> None:
        queue = stage.queue()
        gate = stage.gate()
        message = queue.put(stage.act(name="running", until=gate))
        worker = self.worker(queue, drain_timeout=0.1).start()
        eventually(lambda: stage.names("began"))

        worker.stop()
        assert worker.join(20)

        found = queue.inspect(message.id)
        assert found is not None
        assert (found.state, found.failures, found.crashes) == ("ready", 0, 0)
        assert stage.names() == []
        assert worker.summary == Summary(released=1)

    def test_a_worker_can_stop_at_once(self, stage: Stage) -> None:
        queue = stage.queue()
        queue.put(stage.act(until=stage.gate("never")))
        worker = self.worker(queue).start()
        eventually(lambda: stage.names("began"))

        worker.stop(now=True)
        assert worker.join(20)

        assert worker.summary == Summary(released=1)
        assert queue.stats().ready == 1

    def test_an_idle_worker_stops_at_once(self, stage: Stage) -> None:
        queue = stage.queue()
        worker = self.worker(queue).start()
        queue.put(stage.act(name="seen"))
        eventually(lambda: stage.names() == ["seen"])

        began = time.monotonic()
        worker.stop()
        assert worker.join(20)

        assert time.monotonic() - began < 0.9

    def test_stop_may_be_called_by_anyone_at_any_time(self, stage: Stage) -> None:
        queue = stage.queue()
        worker = self.worker(queue)
        worker.stop()

        for _ in range(3):
            worker.start()
            threads = [threading.Thread(target=worker.stop) for _ in range(4)]
            for thread in threads:
                thread.start()
            assert worker.join(20)
            for thread in threads:
                thread.join()

        queue.put(stage.act())
        assert worker.run(until_empty=True).done == 1

    def test_a_worker_used_with_with_runs_in_the_background(self, stage: Stage) -> None:
        queue = stage.queue()

        with self.worker(queue) as worker:
            queue.put(stage.act(name="seen"))
            eventually(lambda: worker.summary.done)

        assert stage.names() == ["seen"]

    def test_a_closed_store_ends_the_worker_with_its_error(self, stage: Stage) -> None:
        queue = stage.queue()
        worker = self.worker(queue).start()
        queue.put(stage.act(name="seen"))
        eventually(lambda: worker.summary.done)

        stage.store.close()

        with pytest.raises(StoreClosed):
            worker.join(20)
