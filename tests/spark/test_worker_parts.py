"""What workers on Spark consist of, each alone: sizes, suspects, and the line to the driver."""

from __future__ import annotations

import hmac
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from queue import Empty, SimpleQueue
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from localqueue.errors import HandlerCancelled, HandlerTimeout
from localqueue.message import QueueMessage
from localqueue.spark.workers import handler_round
from localqueue.spark.workers.answers import News, Ran, Word
from localqueue.spark.workers.batch_size import LONG, BatchSize
from localqueue.spark.workers.handler_task import HandlerTask
from localqueue.spark.workers.lanes import Lane
from localqueue.spark.workers.news import DeskAddress, NewsDesk, Reporter
from localqueue.spark.workers.suspects import DOUBTS, Suspects
from localqueue.workers.context import Slot, current_message
from localqueue.workers.parcel import pack
from localqueue.workers.wire import Wire
from tests.spark.waiting import until

NEWS = News(7, 0, [None, ("returned", b"x")], [0.1, 0.2], 2, 3, [(2, "50%")])
PATIENCE = 30.0
Reporters = Callable[[DeskAddress], Reporter]


# --- sizes --------------------------------------------------------------------------------------
def test_a_batch_begins_with_one_message_and_grows_as_handlers_turn_out_to_be_quick() -> None:
    size = BatchSize(1000)

    sizes = [size.now]
    for _ in range(2):
        size.measure(size.now, seconds=0.0)
        sizes.append(size.now)

    assert sizes == [1, 32, 1000]


def test_a_batch_has_what_is_run_in_a_moment() -> None:
    size = BatchSize(1000)
    for _ in range(20):
        size.measure(10, seconds=10 * 0.005)

    assert size.now == pytest.approx(LONG / 0.005, abs=1)


def test_the_last_messages_are_shared_by_all_lanes_but_not_into_tiny_jobs() -> None:
    slow, quick = BatchSize(1000), BatchSize(1000)
    for _ in range(20):
        slow.measure(10, seconds=10 * 0.005)
        quick.measure(1000, seconds=0.001)

    assert [slow.share(left, lanes=4) for left in (5000, 400, 40, 0)] == [200, 100, 20, 20]
    assert quick.share(40, lanes=4) == 1000


def test_handlers_that_take_long_have_a_batch_of_their_own() -> None:
    size = BatchSize(1000)
    for _ in range(20):
        size.measure(1, seconds=60.0)

    assert size.now == 1


# --- suspects -----------------------------------------------------------------------------------
def _messages(count: int, crashes: int = 0) -> list[QueueMessage[int]]:
    return [QueueMessage(f"{n:032x}", n, "jobs", crashes=crashes) for n in range(count)]


def test_what_was_in_a_job_that_died_comes_into_smaller_ones_until_it_is_alone() -> None:
    suspects = Suspects()
    left = _messages(1000)
    companies = []

    while len(left) > 1:
        suspects.add(left, of=len(left))
        companies.append(suspects.company(left[0], 1000))
        left = left[: companies[-1]]

    assert companies == [31, 5, 2, 1]


def test_what_has_ended_without_harm_is_free_again() -> None:
    suspects = Suspects()
    messages = _messages(100)
    suspects.add(messages, of=100)

    suspects.clear(messages[1:])

    assert suspects.company(messages[1], 500) == 500
    assert suspects.company(messages[0], 500) == 10
    assert suspects.share(500) == 10
    suspects.clear(messages)
    assert suspects.share(500) == 500


def test_who_was_charged_with_a_crash_before_is_alone() -> None:
    [message] = _messages(1, crashes=1)

    assert Suspects().company(message, 1000) == 1


def test_a_message_may_die_a_few_times_before_it_begins_and_not_for_ever() -> None:
    suspects = Suspects()
    [message] = _messages(1)

    innocent = []
    for _ in range(DOUBTS):
        innocent.append(suspects.is_doubtful(message))
        suspects.add([message], of=1)
    suspects.clear([message])

    assert innocent == [True] * (DOUBTS - 1) + [False]
    assert suspects.is_doubtful(message)


# --- a round ------------------------------------------------------------------------------------
@pytest.fixture
def _own_signal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = signal.getsignal(handler_round.INTERRUPT)
    monkeypatch.setattr(handler_round, "_hears", False)
    yield
    signal.signal(handler_round.INTERRUPT, before)


class Interrupting:
    """Interrupts the round so many steps of the interpreter after its first handler was told."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.has_told = False

    def run(self, round_: handler_round.Round) -> Ran:
        return next(self._run_apart(round_))

    def _run_apart(self, round_: handler_round.Round) -> Iterator[Ran]:
        """An error raised in the middle of a step can stay "being handled" when the frame has
        ended; in a generator that ends with the generator, not with the process."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            ran = round_.run()
        except BaseException as error:
            # Its traceback may have places without a line, which pytest cannot show.
            raise AssertionError(f"the round was hit: {error!r}") from None
        finally:
            sys.settrace(before)
        yield ran

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != handler_round.__file__:
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.has_told and event == "opcode":
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(handler_round.INTERRUPT)
        return self._step


@pytest.mark.usefixtures("_own_signal")
@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_an_interrupt_that_comes_late_hits_neither_the_next_message_nor_the_round(
    ending: str,
) -> None:
    answers: Counter[str] = Counter()
    steps, is_in_time = 0, True
    while is_in_time:
        steps += 1
        interrupting = Interrupting(steps)

        def handle(value: int, interrupting: Interrupting = interrupting) -> None:
            if value == 0:
                current_message().tell(HandlerTimeout("it ran too long"))
                interrupting.has_told = True
                if ending == "raises":
                    raise ValueError("its own")

        fields = [dict(vars(message)) for message in _messages(2)]
        ran = interrupting.run(handler_round.Round(handle, 1, fields, None, None))

        is_in_time = interrupting.left <= 0
        first, second = ran.answers
        assert second is None, f"after {steps} steps"
        answers["none" if first is None else first[1]["kept"]["type"]] += 1

    assert sys.exception() is None, "later tests would run inside an except"
    # Some came in time, and some when the handler had ended.
    assert set(answers) == {"HandlerTimeout", "none" if ending == "returns" else "ValueError"}


# --- a lane -------------------------------------------------------------------------------------
class NeverEnding:
    """Takes a batch, and keeps it until it is told what became of it."""

    def __init__(self) -> None:
        self.then: SimpleQueue[Callable[[Any], object]] = SimpleQueue()

    def submit(self, parcel: bytes, then: Callable[[Any], object]) -> None:
        self.then.put(then)


def test_a_message_is_not_told_to_end_for_the_one_before_it(
    desk: NewsDesk, reporters: Reporters
) -> None:
    batch = _messages(3)
    shift: Any = SimpleNamespace(shutdown=SimpleNamespace(asked=False), acks=[])
    execution: Any = SimpleNamespace(
        is_simple=lambda: True, tell_handled=lambda *_: None, success=lambda *_: None
    )
    lanes: Any = SimpleNamespace(
        numbers=count(7), shift=shift, execution=execution, desk=desk, is_dismissed=False
    )
    slot, submitter = Slot(0), NeverEnding()
    runner = threading.Thread(target=Lane(lanes, slot, cast(Any, submitter), batch).run)
    runner.start()
    submitter.then.get(timeout=PATIENCE)
    reporter = reporters(desk.address)
    # The first one runs and is told to end; before that is passed on, the second one runs.
    reporter.send(News(7, 0, [], [], 0, 3, []))
    late, own = HandlerCancelled("of the first"), HandlerCancelled("of the second")
    slot.current_of(batch[0]).tell(late)
    reporter.send(News(7, 0, [None], [0.1], 1, 3, []))
    until(lambda: slot.message is batch[1], "the second one does not begin")
    assert slot.interrupt is not None

    slot.interrupt(late)
    slot.tell(batch[1], own)

    words: list[Word] = []

    def listen() -> bool:
        words.extend(reporter.words())
        return bool(words)

    until(listen, "nothing is said")
    lanes.is_dismissed = True
    runner.join(PATIENCE)
    assert words == [Word(7, 1, "HandlerCancelled", "of the second")]


# --- the line -----------------------------------------------------------------------------------
@pytest.fixture
def desk() -> Iterator[NewsDesk]:
    desk = NewsDesk("127.0.0.1")
    yield desk
    desk.close()


@pytest.fixture
def reporters() -> Iterator[Reporters]:
    with ExitStack() as made:

        def make(address: DeskAddress) -> Reporter:
            reporter = Reporter(address)
            made.callback(reporter.close)
            return reporter

        yield make


def test_news_reach_the_job_that_they_are_about_and_words_the_task(
    desk: NewsDesk, reporters: Reporters
) -> None:
    heard: SimpleQueue[News] = SimpleQueue()
    desk.follow(7, heard.put)
    reporter = reporters(desk.address)
    word = Word(7, 2, "HandlerCancelled", "somebody cancelled the message")

    desk.tell(word)
    assert reporter.send(NEWS)
    assert heard.get(timeout=PATIENCE) == NEWS
    desk.tell(word._replace(place=-1))
    words: list[Word] = []

    def listen() -> bool:
        words.extend(reporter.words())
        return len(words) == 2

    until(listen, "nothing is said")

    assert words == [word, word._replace(place=-1)]


def test_news_of_a_job_that_nobody_follows_are_dropped(
    desk: NewsDesk, reporters: Reporters
) -> None:
    heard: SimpleQueue[News] = SimpleQueue()
    desk.follow(8, heard.put)
    reporter = reporters(desk.address)

    reporter.send(NEWS)
    reporter.send(NEWS._replace(job=8))

    assert heard.get(timeout=PATIENCE).job == 8
    with pytest.raises(Empty):
        heard.get_nowait()


def test_news_that_cannot_be_heard_are_logged_without_a_password(
    desk: NewsDesk, reporters: Reporters, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(news: News) -> None:
        raise ValueError("no postgresql://anna:hunter2@host/db")

    desk.follow(7, fail)
    reporters(desk.address).send(NEWS)

    until(lambda: "postgresql://anna:***@host/db" in caplog.text, "nothing is logged")
    assert "hunter2" not in caplog.text


def test_where_the_desk_is_can_be_shown_without_its_secret(desk: NewsDesk) -> None:
    task = HandlerTask(b"", None, desk.address)

    for shown in (f"{desk.address}", f"{desk.address!r}", f"{task}", f"{task!r}"):
        assert repr(desk.address.secret) not in shown
        assert str(desk.address.port) in shown


def test_who_does_not_know_the_secret_is_not_heard(desk: NewsDesk, reporters: Reporters) -> None:
    heard: SimpleQueue[News] = SimpleQueue()
    desk.follow(7, heard.put)
    host, port, _ = desk.address

    stranger = reporters(DeskAddress(host, port, b"guessed"))
    stranger.send(NEWS)
    with socket.create_connection((host, port)) as another:
        another.sendall(hmac.digest(b"guessed", another.recv(32), "sha256"))
        try:
            Wire(another).send(pack(NEWS))
            closed = another.recv(1) == b""
        except OSError:
            closed = True

    assert closed
    assert heard.empty()


def test_a_desk_that_nobody_can_reach_is_not_called_again_at_once(
    desk: NewsDesk, reporters: Reporters
) -> None:
    reporter = reporters(desk.address)
    desk.close()

    assert not reporter.send(NEWS)
    assert not reporter.send(NEWS)
