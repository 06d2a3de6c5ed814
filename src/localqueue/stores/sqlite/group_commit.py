"""Group commit: one caller works for all that wait, so that they share a transaction and a sync.

Alone, a call runs in its own thread at once. Under load the others line up behind the one that
works; when it is done, the first of them takes all that wait into the next transaction. There is no
writer thread, except for calls that no thread waits for: those of event loops are led by a helper,
started with the first of them.

Where the work is to wait for a disk, who comes first gathers as many as there were the last time:
those who were just answered are about to come again, and would have to wait for two syncs else. The
last to come leads, since it is the one that is awake.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from localqueue.clock import Now
from localqueue.errors import StoreBusy, StoreClosed
from localqueue.stores.sqlite.view import Transaction

R = TypeVar("R")
Verb = Callable[[Transaction], R]
Undo = Callable[[Any], Verb[Any] | None]
LARGEST_GROUP = 256
NOW_AND_THEN = 0.1
LONGEST_GATHERING = 0.002
"""Seconds that others are waited for at most: those who are about to come are here long before."""


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


class Nobody:
    """Listens to calls that nobody asked for."""

    def taken(self) -> bool:
        return True

    def finished(self, call: Call[Any]) -> None: ...

    def tell(self) -> None: ...


class Call(Generic[R]):
    """A verb that somebody waits for."""

    # Most calls are alone, and none of this ever changes for them.
    answer: R
    listener: Listener | None = None
    error: BaseException | None = None
    gone = False
    """Its caller will not see the answer."""
    taken = False
    finished = False
    _awake: threading.Lock | None = None
    is_of_main_thread = False
    _successor: Call[Any] | None = None
    """Whom its thread wakes when it has been woken itself."""

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
        if listener is not None:
            self.listener = listener

    def result(self) -> R:
        if self.error is not None:
            try:
                raise self.error
            finally:
                # The traceback holds this frame: no circle.
                self.error = None
        return self.answer

    def take(self) -> bool:
        """From now on it runs to its end; False when it was withdrawn."""
        if self.listener is not None and not self.taken and not self.listener.taken():
            return False
        self.taken = True
        return True

    def line_up(self) -> None:
        self.is_of_main_thread = threading.get_ident() == threading.main_thread().ident
        self._awake = threading.Lock()
        self._awake.acquire()

    def wait(self, timeout: float) -> bool:
        assert self._awake is not None
        return self._awake.acquire(timeout=max(0.0, timeout))

    def wake(self) -> None:
        if self._awake is not None and self._awake.locked():
            # Somebody else may be faster.
            with contextlib.suppress(RuntimeError):
                self._awake.release()

    def wake_successor(self) -> None:
        """One that has gone wakes nobody: then the next. May be done again, by anybody."""
        call = self._successor
        while call is not None:
            call.wake()
            if not call.gone:
                break
            call = call._successor


def finish(calls: Sequence[Call[Any]]) -> None:
    """Their answers or errors are final: tell those who wait. Interrupted, do it once more.

    Threads wake each other, the first one the second and so on. Woken all at once they would fight
    for the interpreter's lock, which takes each of them longer than what it came for. The main one
    comes last: a signal's handler may keep it, and wait for the others.
    """
    threads: list[Call[Any]] = []
    last: list[Call[Any]] = []
    for call in calls:
        if call.listener is not None:
            if not call.finished:
                call.listener.finished(call)
                call.finished = True
            continue
        call.finished = True
        (last if call.is_of_main_thread else threads).append(call)
    threads += last
    for call, successor in pairwise(threads):
        call._successor = successor
    if threads:
        threads[0].wake()
        if threads[0].gone:
            threads[0].wake_successor()


class Work(Protocol):
    """What a leader does."""

    def __call__(self, own: Call[Any], take: Callable[[], list[Call[Any]]]) -> None:
        """Take the calls that wait, ``own`` first, and finish those whose answer is final.

        Those that are left are given the error that is raised; after an interrupt, which is for
        ``own`` alone, they are done in the next group.
        """


class GroupCommit:
    """Who works, and who waits.

    Interrupts come at any moment: who leads is one assignment, and giving it up is done once.
    """

    def __init__(
        self, work: Work, abandoned: Callable[[Call[Any]], None], *, gathers: bool = False
    ) -> None:
        """``abandoned`` is given finished calls whose caller did not wait for them.

        ``gathers``: the work takes longer than to wait for others who come.
        """
        self._work = work
        self._abandoned = abandoned
        self._gathers = gathers
        self._expected = 1
        """How many are at it, as far as the last group told."""
        self._took = 0.0
        """How long that one was at work: nobody is waited for longer than that."""
        self._gatherer: Call[Any] | None = None
        """The leader, while it waits for others to come."""
        self._mutex = threading.Lock()
        self._waiting: deque[Call[Any]] = deque()
        self._leader: Call[Any] | None = None
        self._thread = 0
        """The one that leads."""
        self._group: list[Call[Any]] = []
        """What it has taken."""
        self._helper: _Helper | None = None
        self._stopped = False

    def run(self, call: Call[R]) -> R:
        """The answer, when the work is done; StoreBusy at the call's deadline."""
        try:
            if self._leads_at_once(call) or self._follows_until_it_leads(call):
                self._lead(call)
            else:
                call.wake_successor()
        except BaseException:
            self._leave(call)
            raise
        return call.answer if call.error is None else call.result()

    def submit(self, call: Call[Any]) -> None:
        """The same for a call with a listener; returns at once."""
        with self._mutex:
            if not self._stopped:
                if self._helper is None:
                    # Before anything is changed: a thread may not be had.
                    self._helper = _Helper(self)
                self._waiting.append(call)
                gatherer = self._gatherer
                if self._leader is None:
                    self._pass_to_helper()
                elif gatherer is not None and len(self._waiting) + 1 >= self._expected:
                    gatherer.wake()
                    # It leads from now on: nobody may take its place any more.
                    self._gatherer = None
                return
        call.error = StoreClosed("the store was closed")
        self._end(call)

    def hold(self, deadline: float) -> Call[None]:
        """Let nobody work until ``let_go`` of what this returns; StoreBusy at the deadline."""
        call: Call[None] = Call(_stand_alone, 0.0, deadline)
        try:
            if not self._leads_at_once(call):
                self._follows_until_it_leads(call)
        except BaseException:
            self._leave(call)
            raise
        return call

    def let_go(self, leader: Call[Any]) -> None:
        """The next one leads, if this one did."""
        with self._mutex:
            if self._leader is not leader:
                return
            self._gatherer = None
            if not self._waiting:
                self._leader = None
                return
            successor = self._waiting[0]
            if successor.listener is not None:
                self._pass_to_helper()
                return
            # Interrupted after any of these steps, it is woken once more, or leads.
            successor.wake()
            self._leader = successor
            self._waiting.popleft()

    def _pass_to_helper(self) -> None:
        """With the mutex, for which the helper waits. Woken in vain it does nothing."""
        assert self._helper is not None
        self._helper.wake()
        self._leader = _THE_HELPER

    def stop(self) -> None:
        """End the helper thread; who still waits for it hears that the store was closed."""
        with self._mutex:
            self._stopped = True
            left = [call for call in self._waiting if call.listener is not None]
            for call in left:
                self._waiting.remove(call)
            if self._helper is not None:
                self._helper.stop()
        for call in left:
            if call.take():
                call.error = StoreClosed("the store was closed")
                self._end(call)

    def lead_for_listener(self) -> None:
        """What the helper does: lead the first that waits, if that is still one without thread."""
        own, overdue = None, []
        with self._mutex:
            if self._leader is not _THE_HELPER:
                return
            now = time.monotonic()
            while own is None and self._waiting and self._waiting[0].listener is not None:
                call = self._waiting.popleft()
                if call.deadline < now:
                    overdue.append(call)
                elif call.take():
                    own = self._leader = call
        self._end_overdue(overdue)
        if own is None:
            self.let_go(_THE_HELPER)
        else:
            try:
                self._lead(own)
            finally:
                self.let_go(own)

    def _leads_at_once(self, call: Call[Any]) -> bool:
        with self._mutex:
            if self._leader is None:
                self._leader = call
                if not self._begins_to_gather(call):
                    return True
                call.line_up()
                return False
            if self._thread == threading.get_ident() and self._leader is not _THE_HELPER:
                raise StoreBusy("this thread is at work on a call already; a signal interrupted it")
            gatherer = self._gatherer
            if gatherer is not None and self._is_last_of_all(call):
                # Interrupted after any of these steps, the one who gathered leads after all.
                if gatherer not in self._waiting:
                    self._waiting.appendleft(gatherer)
                self._leader = call
                self._gatherer = None
                return True
            call.line_up()
            self._waiting.append(call)
            return False

    def _begins_to_gather(self, leader: Call[Any]) -> bool:
        """With the mutex: whether others are about to come that are worth waiting for."""
        if len(self._waiting) + 1 >= self._expected or leader.verb is _stand_alone:
            return False
        self._gatherer = leader
        return True

    def _is_last_of_all(self, call: Call[Any]) -> bool:
        """With the mutex: whether the one who gathers need not wait for more than this one."""
        return len(self._waiting) + 2 >= self._expected and call.verb is not _stand_alone

    def _follows_until_it_leads(self, call: Call[Any]) -> bool:
        """False when it is finished instead."""
        has_gathered = False
        while True:
            if self._gatherer is call:
                has_gathered = True
                call.wait(min(self._took, LONGEST_GATHERING, call.deadline - time.monotonic()))
            elif not call.wait(call.deadline - time.monotonic()):
                self._wait_past_deadline(call)
            if call.finished:
                return False
            with self._mutex:
                if self._leader is not call:
                    # Somebody leads in the place of one who gathered, or was interrupted.
                    continue
                if call in self._waiting:
                    self._waiting.remove(call)
                if has_gathered or not self._begins_to_gather(call):
                    self._gatherer = None
                    return True

    def _wait_past_deadline(self, call: Call[Any]) -> None:
        """StoreBusy for one that nobody has taken; the others have an end."""
        with self._mutex:
            if self._leader is call:
                return
            if call in self._waiting:
                self._waiting.remove(call)
                raise StoreBusy("other threads kept the store busy until the timeout")
        # Looked at: a thread that was interrupted twice may have failed to wake this one.
        while not (call.finished or call.wait(NOW_AND_THEN)):
            pass

    def _leave(self, call: Call[Any]) -> None:
        """Its caller goes without an answer."""
        with self._mutex:
            if call in self._waiting:
                self._waiting.remove(call)
                if self._leader is not call:
                    return
        call.gone = True
        call.wake_successor()
        if self._leader is call and self._group and self._group[0] is call:
            # It has worked for others, and may not have told them.
            self._end_all(call, self._group, call.error)
        self.let_go(call)
        if call.finished:
            self._abandoned(call)

    def _lead(self, own: Call[Any]) -> None:
        self._group = group = [own]
        error: BaseException | None = None
        began = time.monotonic() if self._gathers else 0.0
        try:
            self._thread = threading.get_ident()
            own.taken = True
            self._work(own, self._take)
        except BaseException as raised:
            error = raised
            if not isinstance(raised, Exception):
                raise
            own.error = raised
        finally:
            self._thread = 0
            if self._gathers:
                self._took = time.monotonic() - began
                self._expected = len(group) + len(self._waiting)
            # Whoever is interrupted before the end of this comes to ``_leave``.
            if len(group) == 1 and own.listener is None:
                # Who would be told is here.
                own.finished = True
                if own.gone:
                    self._abandoned(own)
            else:
                self._end_all(own, group, error)
            self.let_go(own)

    def _end_all(self, own: Call[Any], group: list[Call[Any]], error: BaseException | None) -> None:
        """Nobody who was taken is left without an end, whoever interrupts this."""
        left = [call for call in group if call is not own and not call.finished]
        try:
            self._end_left(own, left, group, error)
        except BaseException:
            self._end_left(own, left, group, error)
            raise

    def _end_left(
        self,
        own: Call[Any],
        left: list[Call[Any]],
        group: list[Call[Any]],
        error: BaseException | None,
    ) -> None:
        if isinstance(error, Exception):
            for call in left:
                call.error = error
            finish(left)
        elif left:
            with self._mutex:
                # One that was just being taken may still stand there.
                self._waiting.extendleft(c for c in reversed(left) if c not in self._waiting)
        finish((own,))
        if own.gone:
            self._abandoned(own)
        for call in group:
            if call.listener is not None:
                call.listener.tell()

    def _take(self) -> list[Call[Any]]:
        group = self._group
        if self._waiting:
            overdue = []
            with self._mutex:
                now = time.monotonic()
                while self._waiting and len(group) < LARGEST_GROUP:
                    call = self._waiting[0]
                    if call.verb is _stand_alone:
                        break
                    if call.listener is not None and call.deadline < now:
                        overdue.append(self._waiting.popleft())
                    elif call.take():
                        group.append(call)
                        self._waiting.popleft()
                    else:
                        self._waiting.popleft()
            self._end_overdue(overdue)
        return group

    def _end_overdue(self, calls: list[Call[Any]]) -> None:
        """Nobody withdraws a call without a thread when its time is over."""
        for call in calls:
            if call.take():
                call.error = StoreBusy("the store was busy until the timeout")
                self._end(call)

    def _end(self, call: Call[Any]) -> None:
        finish((call,))
        if call.listener is not None:
            call.listener.tell()


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


_THE_HELPER: Call[Any] = Call(_stand_alone, 0.0, 0.0)
"""Leads until it has found out for whom."""


def neighbours(calls: Sequence[Call[Any]]) -> Iterator[list[Call[Any]]]:
    """Calls one after the other that can be done as one."""
    run = [calls[0]]
    joins = getattr(calls[0].verb, "joins", None)
    for call in calls[1:]:
        if joins is not None and joins(call.verb):
            run.append(call)
        else:
            yield run
            run = [call]
            joins = getattr(call.verb, "joins", None)
    yield run
