"""The commit contract as a pytest class, so that others can prove their own commit policies.

    class TestMyCommit(CommitContract):
        def open(self, folder, clock):
            store = SQLiteQueueStore(folder / "queue.sqlite3")
            return PersistentQueue("jobs", store=store, clock=clock, delivery_policy=...)

        def effects(self, folder):
            return keys_of_the_effects_that_stand(folder)

``open`` is called again after every crash, with the same folder, for a queue object that knows
nothing of the one before it. A crash is an exception that no code may catch, raised at each of the
moments that ``localqueue.failpoints`` names and between the calls of the worker. Time is the
``ManualClock``; nothing sleeps. ``SecondCrashes`` adds a crash during the recovery from the first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from localqueue import failpoints
from localqueue.commits.open import commit_for
from localqueue.commits.protocol import Commit, Done, Extras, Run, Wait
from localqueue.errors import InvalidResult, LeaseLost
from localqueue.message import QueueMessage
from localqueue.outcome import Ack, DeadLetter, Release, Settlement, describe_error
from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import Settle, Settled
from localqueue.testing.clock import ManualClock

Handler = Callable[[QueueMessage[Any]], Any]

LONG = 3_600.0
"""Longer than a lease, and than anybody leaves unfinished work to somebody else."""
KEY = "key-1"
RESULT = {"paid": 5}


class Crash(BaseException):
    """The process ends here, as far as this can be played within one."""


class HandlerFailed(Exception):
    """What the failing handler of these tests raises."""


class Worker:
    """What every worker does around a commit, and nothing else."""

    def __init__(self, queue: PersistentQueue[Any]) -> None:
        commit = commit_for(queue)
        assert commit is not None, "the queue of a commit contract needs a commit"
        self.queue = queue
        self.commit: Commit = commit
        self.results: list[Any] = []

    def recover(self) -> int:
        return self.commit.recover()

    def lease(self) -> QueueMessage[Any] | None:
        try:
            return self.queue.get_message(block=False)
        except Empty:
            return None

    def work(self, handler: Handler, *, final: bool = False) -> Settled | None:
        """Take one message and bring it to its end; None when there is none."""
        message = self.lease()
        if message is None:
            return None
        failpoints.reach("worker.after-lease")
        try:
            begun = self.commit.begin(message)
            match begun:
                case Run():
                    result = handler(message)
                    failpoints.reach("worker.after-handler")
                    extras = self.commit.success(message, result)
                case Done(result, extras):
                    pass
                case Wait(seconds):
                    return self._settle(message, Release(seconds), Extras())
        except LeaseLost:
            self.commit.dropped(message)
            return Settled.STALE
        except Exception as error:
            return self._fail(message, error, final)
        failpoints.reach("worker.before-ack")
        settled = self._settle(message, Ack(), extras)
        if settled is Settled.DONE:
            self.results.append(result)
            self.commit.settled(message)
            failpoints.reach("worker.after-settled")
        else:
            self.commit.dropped(message)
        return settled

    def work_off(self, handler: Handler, clock: ManualClock) -> None:
        """Deliver until nothing comes any more, and let whatever is left be recovered."""
        self.recover()
        for _ in range(20):
            if self.work(handler) is None:
                break
            clock.advance(10.0)
        else:
            raise AssertionError("the message is delivered again and again")
        clock.advance(LONG)
        self.recover()

    def _fail(self, message: QueueMessage[Any], error: Exception, final: bool) -> Settled:
        extras = self.commit.failure(message, error, final)
        failpoints.reach("worker.before-failure")
        kept = describe_error(error)
        return self._settle(message, DeadLetter(kept) if final else Release(0.0, kept), extras)

    def _settle(
        self, message: QueueMessage[Any], settlement: Settlement, extras: Extras
    ) -> Settled:
        store, when = self.queue._opened()
        end = Settle(message.receipt, settlement, extras.records, extras.puts)
        return store.settle(end, now=when.now)


def succeed(_: QueueMessage[Any]) -> Any:
    return RESULT


def fail(_: QueueMessage[Any]) -> Any:
    raise HandlerFailed("the handler does not want to")


class CommitCase:
    """What a subclass says about its commit, and how it is opened."""

    effects_may_repeat = False
    """Whether an effect may stand twice after a crash: a relay may send again."""
    recognises_repetitions = True
    """Whether there is a ledger: what succeeded under a key is not run again."""
    returns_results = True
    """Whether a recognised repetition gets the result."""
    stores_results = True
    """Whether a result has to be JSON."""

    def open(self, folder: Path, clock: ManualClock) -> PersistentQueue[Any]:
        """The queue, as a new process opens it."""
        raise NotImplementedError

    def close(self, queue: PersistentQueue[Any]) -> None:
        """Whatever ``open`` opened; the process that had it may be dead."""
        queue.store.close()

    def effects(self, folder: Path) -> list[str]:
        """The keys whose effects stand, one entry for each time it happened."""
        raise NotImplementedError

    def left_over(self, queue: PersistentQueue[Any]) -> list[str]:
        """What should be gone when all work is over; empty unless there is something."""
        store, when = queue._opened()
        kinds = ("intent", "relay", "saga", "decision")
        left = [record for kind in kinds for record in store.scan_records(kind, now=when.now)]
        return [f"{record.kind} {record.key}" for record in left if b'"abort"' not in record.value]

    def moments(self, folder: Path, handler: Handler, *, final: bool = False) -> list[str]:
        """What one delivery reaches, in order."""
        reached: list[str] = []
        with _World(self, folder) as world, failpoints.listening(reached.append):
            world.worker().work(handler, final=final)
        return reached


class CommitContract(CommitCase):
    """A crash between any two steps ends in the promised state; so does everything else."""

    # --- without a crash ------------------------------------------------------------------------
    def test_a_success_is_acknowledged_with_its_effect(self, tmp_path: Path) -> None:
        with _World(self, tmp_path) as world:
            assert world.worker().work(succeed) is Settled.DONE

            world.check_done_once()

    def test_a_repetition_of_a_key_that_succeeded_is_not_run(self, tmp_path: Path) -> None:
        if not self.recognises_repetitions:
            pytest.skip("there is no ledger")
        with _World(self, tmp_path) as world:
            world.worker().work(succeed)
            world.queue().put("again", dedupe_key=KEY)
            worker = world.worker()

            assert worker.work(_not_to_be_run) is Settled.DONE

            assert worker.results == [RESULT if self.returns_results else None]
            world.check_done_once()

    def test_a_failed_delivery_leaves_no_effect_and_frees_the_key(self, tmp_path: Path) -> None:
        with _World(self, tmp_path) as world:
            worker = world.worker()

            assert worker.work(fail) is Settled.DONE

            assert self.effects(tmp_path) == []
            assert worker.work(succeed) is Settled.DONE
            world.check_done_once()

    def test_a_dead_letter_leaves_no_effect_and_can_be_requeued(self, tmp_path: Path) -> None:
        with _World(self, tmp_path) as world:
            worker = world.worker()

            assert worker.work(fail, final=True) is Settled.DONE

            [letter] = worker.queue.dead_letters()
            assert self.effects(tmp_path) == []
            assert self.left_over(worker.queue) == []
            assert worker.queue.requeue_dead(letter)
            assert worker.work(succeed) is Settled.DONE
            world.check_done_once()

    def test_a_result_that_cannot_be_stored_fails_the_message(self, tmp_path: Path) -> None:
        if not self.stores_results:
            pytest.skip("results are not stored")
        with _World(self, tmp_path) as world:
            worker = world.worker()
            message = worker.lease()
            assert message is not None
            assert isinstance(worker.commit.begin(message), Run)

            with pytest.raises(InvalidResult, match="JSON"):
                worker.commit.success(message, {1, 2})

            assert self.effects(tmp_path) == []

    def test_recovery_has_nothing_to_do_when_nothing_crashed(self, tmp_path: Path) -> None:
        with _World(self, tmp_path) as world:
            assert world.worker().recover() == 0
            world.worker().work(succeed)

            assert world.worker().recover() == 0

            world.check_done_once()

    # --- leases ---------------------------------------------------------------------------------
    def test_recovery_does_not_disturb_a_delivery_that_is_under_way(self, tmp_path: Path) -> None:
        with _World(self, tmp_path) as world:
            worker, message, extras = world.up_to_the_ack()

            world.worker().recover()

            assert worker._settle(message, Ack(), extras) is Settled.DONE
            worker.commit.settled(message)
            world.clock.advance(LONG)
            world.worker().recover()
            world.check_done_once()

    def test_a_delivery_that_lost_its_lease_does_not_begin(self, tmp_path: Path) -> None:
        with _World(self, tmp_path) as world:
            stale = world.worker()
            outdated = stale.lease()
            assert outdated is not None
            world.clock.advance(LONG)
            worker = world.worker()
            message = worker.lease()
            assert message is not None
            assert isinstance(worker.commit.begin(message), Run)

            with pytest.raises(LeaseLost):
                stale.commit.begin(outdated)
            stale.commit.dropped(outdated)

            extras = worker.commit.success(message, RESULT)
            assert worker._settle(message, Ack(), extras) is Settled.DONE
            worker.commit.settled(message)
            world.check_done_once()

    def test_a_delivery_that_lost_its_lease_adds_nothing(self, tmp_path: Path) -> None:
        with _World(self, tmp_path) as world:
            slow, message, extras = world.up_to_the_ack()
            world.clock.advance(LONG)
            quick = world.worker()
            assert quick.work(succeed) is Settled.DONE

            assert slow._settle(message, Ack(), extras) is not Settled.DONE
            slow.commit.dropped(message)

            world.worker().work_off(_not_to_be_run, world.clock)
            world.check_done_once(after_crash=True)

    def test_a_delivery_that_was_too_slow_to_commit_is_refused(self, tmp_path: Path) -> None:
        with _World(self, tmp_path) as world:
            slow = world.worker()
            message = slow.lease()
            assert message is not None
            assert isinstance(slow.commit.begin(message), Run)
            world.clock.advance(LONG)
            world.worker().work_off(succeed, world.clock)

            try:
                extras = slow.commit.success(message, RESULT)
            except Exception:
                slow.commit.failure(message, HandlerFailed(), False)
            else:
                assert slow._settle(message, Ack(), extras) is not Settled.DONE
                slow.commit.dropped(message)

            world.worker().work_off(_not_to_be_run, world.clock)
            world.check_done_once(after_crash=True)

    # --- crashes --------------------------------------------------------------------------------
    def test_a_crash_between_any_two_steps_ends_in_the_promised_state(self, tmp_path: Path) -> None:
        moments = self.moments(tmp_path / "quiet", succeed)
        assert len(moments) >= 3, "nothing is reached: are these the right failpoints?"
        for place in range(len(moments)):
            with _World(self, tmp_path / str(place)) as world:
                world.crash(place, succeed)

                world.worker().work_off(succeed, world.clock)

                world.check_done_once(after_crash=True)

    def test_a_crash_while_a_failure_is_noted_leaves_no_effect(self, tmp_path: Path) -> None:
        for place in range(len(self.moments(tmp_path / "quiet", fail, final=True))):
            with _World(self, tmp_path / str(place)) as world:
                world.crash(place, fail, final=True)
                worker = world.worker()
                worker.recover()
                while worker.work(fail, final=True) is not None:
                    pass
                world.clock.advance(LONG)
                worker.recover()

                assert self.effects(world.folder) == []
                assert self.left_over(worker.queue) == []
                assert len(worker.queue.dead_letters()) == 1


class SecondCrashes(CommitCase):
    """Every pair of crashes: as many worlds as there are moments, squared."""

    def test_a_second_crash_while_the_first_is_recovered_changes_nothing(
        self, tmp_path: Path
    ) -> None:
        for place in range(len(self.moments(tmp_path / "quiet", succeed))):
            for second in range(100):
                with _World(self, tmp_path / f"{place}-{second}") as world:
                    world.crash(place, succeed)
                    crashed = world.crash_while_working_off(second)

                    world.worker().work_off(succeed, world.clock)

                    world.check_done_once(after_crash=True)
                if not crashed:
                    break


class _World:
    """One folder, its clock, and all the processes that come and go there."""

    def __init__(self, contract: CommitCase, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.clock = ManualClock()
        self._contract = contract
        self._queues: list[PersistentQueue[Any]] = []

    def __enter__(self) -> _World:
        self.queue().put("value", dedupe_key=KEY)
        return self

    def __exit__(self, *_: object) -> None:
        for queue in self._queues:
            self._contract.close(queue)

    def queue(self) -> PersistentQueue[Any]:
        queue = self._contract.open(self.folder, self.clock)
        self._queues.append(queue)
        return queue

    def worker(self) -> Worker:
        return Worker(self.queue())

    def up_to_the_ack(self) -> tuple[Worker, QueueMessage[Any], Extras]:
        worker = self.worker()
        message = worker.lease()
        assert message is not None
        assert isinstance(worker.commit.begin(message), Run)
        return worker, message, worker.commit.success(message, RESULT)

    def crash(self, place: int, handler: Handler, *, final: bool = False) -> None:
        """Die at this moment of a delivery; its lease is over afterwards."""
        with failpoints.listening(_dying(place)), pytest.raises(Crash):
            self.worker().work(handler, final=final)
        self.clock.advance(LONG)

    def crash_while_working_off(self, place: int) -> bool:
        """Die at this moment of the recovery; False when it is over before."""
        try:
            with failpoints.listening(_dying(place)):
                self.worker().work_off(succeed, self.clock)
        except Crash:
            self.clock.advance(LONG)
            return True
        return False

    def check_done_once(self, *, after_crash: bool = False) -> None:
        queue, contract = self.queue(), self._contract
        assert queue.stats().total == 0, "the message is still there"
        effects = contract.effects(self.folder)
        if after_crash and contract.effects_may_repeat:
            effects = sorted(set(effects))
        assert effects == [KEY], f"the effects that stand are {effects}"
        assert contract.left_over(queue) == []
        if contract.recognises_repetitions:
            queue.put("again", dedupe_key=KEY)
            worker = self.worker()
            assert worker.work(_not_to_be_run) is Settled.DONE
            assert worker.results == [RESULT if contract.returns_results else None]


def _dying(place: int) -> Callable[[str], None]:
    left = [place]

    def reached(point: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash(point)

    return reached


def _not_to_be_run(message: QueueMessage[Any]) -> Any:
    raise Crash(f"the handler of message {message.id} was run again")
