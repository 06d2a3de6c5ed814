"""What a worker asks the commit of its queue, and what it does with the answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from localqueue.codec import JSON_CODEC
from localqueue.commits.protocol import Done, Extras, Run, Wait
from localqueue.errors import InvalidResult, LeaseLost, StoreBusy, StoreFull
from localqueue.idempotency import MemoryIdempotencyStore
from localqueue.message import QueueMessage
from localqueue.policies import EffectivelyOnceDelivery
from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import Put
from localqueue.stores.records import RecordChange
from localqueue.workers import Summary, Worker, current_message
from tests.unit.workers.phrases import Queue, Stage, dead_errors, eventually, working

Handler = Callable[[Any], Any]


class Diary:
    """A commit that does what the values of messages say, and writes down what it is asked."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Any]] = []
        self._lock = threading.Lock()

    def note(self, what: str, message: QueueMessage[Any]) -> None:
        with self._lock:
            self.lines.append((what, message.value.get("name")))

    def begin(self, message: QueueMessage[Any]) -> Run | Done | Wait:
        self.note("begin", message)
        match message.value.get("begin"):
            case "done":
                return Done("kept", Extras(puts=(_put("later", "from before"),)))
            case "wait" if message.attempts == 1:
                return Wait(0.01)
            case "raise" if message.attempts == 1:
                raise ValueError("the ledger is away")
            case "busy" if message.attempts == 1:
                raise StoreBusy("somebody writes")
            case "taken" if message.attempts == 1:
                raise LeaseLost("another delivery has the key")
            case "done too late":
                assert current_message().wait(20)
                return Done()
            case "too late":
                assert current_message().wait(20)
        return Run()

    def success(self, message: QueueMessage[Any], result: Any) -> Extras:
        self.note("success", message)
        match message.value.get("success"):
            case "raise" if message.attempts == 1:
                raise ValueError("no room for the result")
            case "busy" if ("asked", None) not in self.lines:
                self.note("asked", message)
                raise StoreFull("no space left")
            case "busy for long" if message.attempts == 1:
                raise StoreBusy("somebody writes")
            case "taken" if message.attempts == 1:
                raise LeaseLost("another delivery has the key")
            case "unfit":
                raise InvalidResult("a set cannot be stored")
            case "follow":
                return Extras(puts=(_put("later", result),))
            case "refused" if message.attempts == 1:
                return Extras(puts=(_put("later", result)._replace(priority=7),))
            case "conflict" if message.attempts == 1:
                change = RecordChange("ledger", "key", value=b"1", expect=99)
                return Extras(records=(change,))
        return Extras()

    def settled(self, message: QueueMessage[Any]) -> None:
        self.note("settled", message)

    def failure(self, message: QueueMessage[Any], error: BaseException, final: bool) -> Extras:
        self.note("failed for good" if final else "failed", message)
        return Extras(puts=(_put("later", "sorry"),)) if final else Extras()

    def extended(self, message: QueueMessage[Any], seconds: float) -> None:
        self.note("extended", message)

    def dropped(self, message: QueueMessage[Any]) -> None:
        self.note("dropped", message)

    def recover(self) -> int:
        with self._lock:
            self.lines.append(("recover", None))
        return 0


@dataclass(frozen=True)
class DiaryCommit:
    """A commit policy that brings its own commit."""

    diary: Diary
    mode: ClassVar[str] = "diary"
    local_commit: ClassVar[bool] = True
    coordinates_effects: ClassVar[bool] = False

    def as_dict(self) -> dict[str, Any]:
        return {"mode": self.mode}

    def commit(self, queue: PersistentQueue[Any]) -> Diary:
        return self.diary


def once(diary: Diary) -> EffectivelyOnceDelivery:
    return EffectivelyOnceDelivery(MemoryIdempotencyStore(), commit_policy=DiaryCommit(diary))


def _put(queue: str, value: Any) -> Put:
    return Put(queue, JSON_CODEC.encode(value))


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def queue(stage: Stage, diary: Diary) -> Queue:
    return stage.queue(delivery_policy=once(diary))


def put(queue: Queue, **value: Any) -> QueueMessage[Any]:
    return queue.put(value, dedupe_key=str(value))


def sync(value: Any) -> Any:
    if value.get("do") == "raise":
        raise ValueError("boom")
    return "result"


async def coroutine(value: Any) -> Any:
    return sync(value)


@pytest.fixture(params=[sync, coroutine], ids=["thread", "asyncio"])
def handler(request: pytest.FixtureRequest) -> Handler:
    found: Handler = request.param
    return found


def run(queue: Queue, handler: Handler, **options: Any) -> Summary:
    return Worker(queue, handler, backoff=0.0, **options).run(until_empty=True)


def test_a_success_is_begun_prepared_and_settled(
    queue: Queue, diary: Diary, handler: Handler
) -> None:
    put(queue)

    assert run(queue, handler) == Summary(done=1)
    assert [what for what, _ in diary.lines] == ["recover", "begin", "success", "settled"]


def test_what_a_success_writes_is_stored_with_the_acknowledgement(
    stage: Stage, queue: Queue, handler: Handler
) -> None:
    put(queue, success="follow")

    assert run(queue, handler) == Summary(done=1)
    assert stage.queue("later").get_nowait() == "result"


def test_what_is_done_already_is_acknowledged_without_its_handler(
    stage: Stage, queue: Queue, diary: Diary
) -> None:
    put(queue, begin="done")
    seen: list[Any] = []

    assert run(queue, seen.append) == Summary(done=1)
    assert seen == []
    assert stage.queue("later").get_nowait() == "from before"
    assert diary.lines[-1] == ("settled", None)


def test_a_key_that_another_delivery_runs_is_waited_for_uncharged(
    queue: Queue, handler: Handler
) -> None:
    put(queue, begin="wait")

    assert run(queue, handler, max_tries=1) == Summary(done=1, snoozed=1)


@pytest.mark.parametrize("where", ["begin", "success"])
def test_a_commit_that_raises_fails_the_delivery(
    queue: Queue, diary: Diary, handler: Handler, where: str
) -> None:
    put(queue, **{where: "raise"})

    assert run(queue, handler) == Summary(done=1, failed=1)
    assert ("failed", None) in diary.lines


def test_a_store_in_trouble_before_the_handler_is_nobodys_failure(
    queue: Queue, diary: Diary, handler: Handler
) -> None:
    put(queue, begin="busy")

    assert run(queue, handler, max_tries=1) == Summary(done=1, returned=1)
    assert [what for what, _ in diary.lines].count("begin") == 2


def test_a_store_in_trouble_after_the_handler_is_asked_again(
    queue: Queue, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localqueue.workers.execution.PATIENCE", 0.01)
    put(queue, success="busy")
    seen: list[Any] = []

    assert run(queue, seen.append, max_tries=1) == Summary(done=1)
    assert len(seen) == 1
    assert [what for what, _ in diary.lines].count("success") == 2


def test_a_store_that_stays_in_trouble_charges_nothing(
    stage: Stage, diary: Diary, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localqueue.workers.execution.PATIENCE", 0.05)
    queue = stage.queue(delivery_policy=once(diary), lease_timeout=0.2)
    put(queue, success="busy for long")

    assert run(queue, handler, max_tries=1) == Summary(done=1, released=1)
    assert ("dropped", None) in diary.lines


@pytest.mark.parametrize("where", ["begin", "success"])
def test_a_key_that_another_delivery_has_taken_is_no_failure(
    queue: Queue, diary: Diary, handler: Handler, where: str
) -> None:
    put(queue, **{where: "taken"})

    assert run(queue, handler, max_tries=1) == Summary(done=1, lost=1)
    assert ("dropped", None) in diary.lines


def test_a_result_that_cannot_be_stored_is_not_made_again(queue: Queue, handler: Handler) -> None:
    put(queue, success="unfit")

    assert run(queue, handler, max_tries=9) == Summary(dead=1)
    assert dead_errors(queue) == ["InvalidResult"]


def test_a_commit_that_finds_the_work_done_ends_it_though_it_took_too_long(
    queue: Queue, handler: Handler
) -> None:
    put(queue, begin="done too late", name=1)
    put(queue, begin="done too late", name=2)

    assert run(queue, handler, timeout=0.05, max_tries=1) == Summary(done=2)


def test_no_coroutine_begins_that_was_told_to_end(queue: Queue) -> None:
    put(queue, begin="too late")
    seen: list[Any] = []

    async def handler(value: Any) -> None:
        seen.append(value)

    assert run(queue, handler, timeout=0.05, max_tries=1) == Summary(dead=1)
    assert seen == []
    assert dead_errors(queue) == ["HandlerTimeout"]


def test_the_last_failure_is_told_to_be_the_last(
    stage: Stage, queue: Queue, diary: Diary, handler: Handler
) -> None:
    put(queue, do="raise")

    assert run(queue, handler, max_tries=2) == Summary(failed=1, dead=1)
    told = [what for what, _ in diary.lines if what.startswith("failed")]
    assert told == ["failed", "failed for good"]
    assert stage.queue("later").get_nowait() == "sorry"


def test_another_delivery_that_came_first_wins(
    queue: Queue, diary: Diary, handler: Handler
) -> None:
    put(queue, success="conflict")

    assert run(queue, handler, max_tries=1) == Summary(done=1, snoozed=1)
    assert [what for what, _ in diary.lines].count("dropped") == 1


def test_a_follow_up_that_nobody_can_store_fails_its_own_message_only(
    stage: Stage, queue: Queue, diary: Diary, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localqueue.workers.settling.TRY_AGAIN", 0.01)
    put(queue, name="good one")
    put(queue, name="bad", success="refused")
    put(queue, name="good two", success="follow")

    assert run(queue, handler) == Summary(done=3, failed=1)
    assert ("dropped", "bad") in diary.lines
    assert stage.queue("later").qsize() == 1


def test_a_commit_hears_of_every_extension(stage: Stage, diary: Diary) -> None:
    queue = stage.queue(delivery_policy=once(diary), lease_timeout=0.3)
    gate = threading.Event()
    put(queue)

    with working(Worker(queue, lambda value: gate.wait(20))):
        eventually(lambda: ("extended", None) in diary.lines)
        gate.set()


def test_what_a_stop_interrupts_is_dropped_by_the_commit(queue: Queue, diary: Diary) -> None:
    began, gate = threading.Event(), threading.Event()

    def handler(value: Any) -> None:
        began.set()
        gate.wait(20)

    put(queue)
    worker = Worker(queue, handler, concurrency=2).start()
    assert began.wait(20)
    worker.stop(now=True)
    assert worker.join(20)
    gate.set()

    eventually(lambda: ("dropped", None) in diary.lines)
    assert ("success", None) not in diary.lines
    assert queue.stats().ready == 1
