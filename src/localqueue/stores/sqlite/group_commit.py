"""Group commit: one caller works for all that wait, so that they share a transaction and a sync.

Alone, a call runs in its own thread at once. Under load the others line up behind the one that
works; when it is done, the first of them takes all that wait into the next transaction. There is no
writer thread, except for calls that no thread waits for: those of event loops are led by a helper,
started with the first of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from localqueue.clock import Now
from localqueue.errors import StoreBusy
from localqueue.stores.sqlite.view import Transaction

R = TypeVar("R")
Verb = Callable[[Transaction], R]
Undo = Callable[[Any], Verb[Any] | None]
LARGEST_GROUP = 256


class Manner(NamedTuple):
    """What the engine has to know of a call besides its verb."""

    grows: bool = False
    """It needs more of the disk, and is refused while that is full."""
    fleeting: bool = False
    """A power cut may undo it: it ends with the boot anyway, as leases do. Nobody waits for the
    disk then."""
    undo: Undo | None = None
    """What has to be done about the answer when its caller was interrupted and never sees it."""


PLAIN = Manner()
GROWS = Manner(grows=True)


class Listener(Protocol):
    """Who is told of an answer, where no thread waits for it."""

    def taken(self) -> bool:
        """From now on the call runs to its end; False when it was withdrawn."""

    def finished(self, call: Call[Any]) -> None:
        """The call has its answer; others of its group may not have theirs yet."""

    def tell(self) -> None:
        """All of its group have: who waits may be woken now.

        Woken one by one, the first of them would have the next transaction for itself alone.
        """


class Call(Generic[R]):
    """A verb that somebody waits for."""

    __slots__ = (
        "_awake", "answer", "deadline", "error", "finished", "gone", "leads", "listener", "manner",
        "now", "verb",
    )  # fmt: skip

    answer: R

    def __init__(
        self,
        verb: Verb[R],
        now: Now,
        deadline: float,
        manner: Manner = PLAIN,
        listener: Listener | None = None,
    ) -> None:
        self.verb = verb
        self.now = now
        self.deadline = deadline
        self.manner = manner
        self.listener = listener
        self.error: BaseException | None = None
        self.gone = False
        self.leads = False
        self.finished = False
        self._awake: threading.Lock | None = None

    def result(self) -> R:
        if self.error is not None:
            try:
                raise self.error
            finally:
                # The traceback holds this frame: no circle.
                self.error = None
        return self.answer

    def finish(self) -> None:
        """Its answer or error is final: tell the one who waits."""
        if not self.finished:
            self.finished = True
            if self.listener is not None:
                self.listener.finished(self)
            else:
                self.wake()

    def line_up(self) -> None:
        self._awake = threading.Lock()
        self._awake.acquire()

    def wait(self, timeout: float) -> bool:
        assert self._awake is not None
        return self._awake.acquire(timeout=max(0.0, timeout))

    def wake(self) -> None:
        if self._awake is not None:
            self._awake.release()


class Work(Protocol):
    """What a leader does."""

    def __call__(self, own: Call[Any], take: Callable[[], list[Call[Any]]]) -> None:
        """Take the calls that wait, ``own`` first, and finish each with an answer or an error.

        What is raised is the error of ``own``; no other may be left unfinished by it.
        """


class GroupCommit:
    """Who works, and who waits."""

    def __init__(self, work: Work, abandoned: Callable[[Call[Any]], None]) -> None:
        """``abandoned`` is given finished calls whose caller did not wait for them."""
        self._work = work
        self._abandoned = abandoned
        self._mutex = threading.Lock()
        self._waiting: deque[Call[Any]] = deque()
        self._leading = False
        self._helper: _Helper | None = None

    def run(self, call: Call[R]) -> R:
        """The answer, when the work is done; StoreBusy at the call's deadline."""
        if not self._leads_at_once(call):
            self._follow(call)
        if call.leads:
            self._lead(call)
        return call.result()

    def submit(self, call: Call[Any]) -> None:
        """The same for a call with a listener; returns at once."""
        with self._mutex:
            self._waiting.append(call)
            if not self._leading:
                self._leading = True
                self._wake_helper()

    def give_back(self, calls: list[Call[Any]]) -> None:
        """Calls that were taken and came to nothing: they are first in the next group."""
        with self._mutex:
            self._waiting.extendleft(reversed(calls))

    def hold(self, deadline: float) -> None:
        """Let nobody work until ``let_go``; StoreBusy at the deadline."""
        call: Call[None] = Call(_stand_alone, 0.0, deadline)
        if not self._leads_at_once(call):
            self._follow(call)

    def let_go(self) -> None:
        """The next one leads."""
        with self._mutex:
            if not self._waiting:
                self._leading = False
                return
            if self._waiting[0].listener is not None:
                self._wake_helper()
                return
            successor = self._waiting.popleft()
            successor.leads = True
        successor.wake()

    def stop(self) -> None:
        """End the helper thread."""
        with self._mutex:
            if self._helper is not None:
                self._helper.stop()
                self._helper = None

    def lead_for_listener(self) -> None:
        """What the helper does: lead the first that waits, if that is still one without thread."""
        with self._mutex:
            own = None
            while self._waiting and (listener := self._waiting[0].listener) is not None:
                call = self._waiting.popleft()
                if listener.taken():
                    own = call
                    break
        if own is None:
            self.let_go()
            return
        self._lead(own)

    def _leads_at_once(self, call: Call[Any]) -> bool:
        with self._mutex:
            if not self._leading:
                self._leading = call.leads = True
                return True
            call.line_up()
            self._waiting.append(call)
            return False

    def _follow(self, call: Call[Any]) -> None:
        """Return when the call is finished, or leads."""
        try:
            if not call.wait(call.deadline - time.monotonic()):
                if self._withdraw(call):
                    raise StoreBusy("other threads kept the store busy until the timeout")
                # Somebody works on it, and has an end.
                call.wait(threading.TIMEOUT_MAX)
        except BaseException:
            self._leave(call)
            raise

    def _withdraw(self, call: Call[Any]) -> bool:
        """Whether nobody worked on it: then nobody will."""
        with self._mutex:
            if call not in self._waiting:
                return False
            self._waiting.remove(call)
            return True

    def _leave(self, call: Call[Any]) -> None:
        """Its caller was interrupted while it waited."""
        if not self._withdraw(call):
            call.gone = True
            if call.leads:
                self.let_go()
            elif call.finished:
                self._abandoned(call)

    def _lead(self, own: Call[Any]) -> None:
        group = [own]

        def take() -> list[Call[Any]]:
            group[:] = self._take(own)
            return group

        try:
            self._work(own, take)
        except Exception as error:
            own.error = error
        finally:
            try:
                own.finish()
                for call in group:
                    if call.listener is not None:
                        call.listener.tell()
            finally:
                self.let_go()

    def _take(self, own: Call[Any]) -> list[Call[Any]]:
        batch = [own]
        if self._waiting:
            with self._mutex:
                while self._waiting and len(batch) < LARGEST_GROUP:
                    if self._waiting[0].verb is _stand_alone:
                        break
                    call = self._waiting.popleft()
                    if call.listener is None or call.listener.taken():
                        batch.append(call)
        return batch

    def _wake_helper(self) -> None:
        if self._helper is None:
            self._helper = _Helper(self)
        self._helper.wake()


class _Helper:
    """A thread that leads where no caller's thread can."""

    def __init__(self, group: GroupCommit) -> None:
        self._orders: SimpleQueue[bool] = SimpleQueue()
        """True to lead; False to end, after what was ordered before."""
        thread = threading.Thread(
            target=self._run, args=(group,), name="localqueue-writer", daemon=True
        )
        thread.start()

    def wake(self) -> None:
        self._orders.put(True)

    def stop(self) -> None:
        self._orders.put(False)

    def _run(self, group: GroupCommit) -> None:
        while self._orders.get():
            group.lead_for_listener()


def _stand_alone(_: Transaction) -> None:
    """The verb of one that wants nobody to work."""
