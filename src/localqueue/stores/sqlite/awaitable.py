"""The awaitable twin of a store on SQLite: the same verbs, over a runner that answers later.

Writes are led by the store's helper thread, which takes all that wait into one transaction. Reads,
and the verbs that are more than one transaction, run one after the other on a thread of the twin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from localqueue.clock import Now
from localqueue.stores.helper_threads import HelperThreads
from localqueue.stores.pending import Mailbox, Mailboxes, Pending
from localqueue.stores.protocol import QueueStore
from localqueue.stores.sqlite.group_commit import PLAIN, Call, Manner, Undo, Verb
from localqueue.stores.sqlite.runner import FileRunner, Runner
from localqueue.stores.sqlite.store import SQLStore
from localqueue.stores.sqlite.view import View
from localqueue.stores.sqlite.wakeup import Wakeups
from localqueue.stores.threaded import NOBODY, ThreadedStore

R = TypeVar("R")

IN_SLICES = frozenset(
    ("prune_dead_letters", "prune_records", "extend_of", "end_leases_of", "close")
)
"""Verbs that are more than one call of the runner."""


class AwaitableSQLStore(ThreadedStore):
    """The twin of one store. A verb that a subclass wrote anew runs as it is, on the thread."""

    def __init__(self, store: SQLStore, runner: Runner, wakeups: Wakeups) -> None:
        super().__init__(store)
        later = LaterRunner(runner, self._helper, self._mailboxes)
        self._verbs = SQLStore(cast("Runner", later), wakeups)
        for verb in ("lease", "settle_and_lease"):
            if self._is_plain(verb):
                setattr(self, verb, getattr(self._verbs, verb))

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if not self._is_plain(verb):
            return super().__getattr__(verb)
        call: Callable[..., Any] = getattr(self._verbs, verb)
        setattr(self, verb, call)
        return call

    def _is_plain(self, verb: str) -> bool:
        """Whether the verb is one call of the runner."""
        written = getattr(type(self._store), verb, None)
        return verb not in IN_SLICES and written is getattr(SQLStore, verb, None)


class LaterRunner:
    """Hands the verbs to threads; its answers are to be awaited."""

    def __init__(self, runner: Runner, helper: HelperThreads, mailboxes: Mailboxes) -> None:
        self._runner = runner
        self._helper = helper
        self._mailboxes = mailboxes

    def write(self, verb: Verb[R], now: Now, manner: Manner = PLAIN) -> Pending[R]:
        mailbox = self._mailboxes.current()
        runner = self._runner
        if isinstance(runner, FileRunner):
            led: _Led[R] = _Led(mailbox, runner)
            led.call = runner.submit_for(led, verb, now, manner)
            return led
        undo = None if manner.undo is None else self._undoing(manner.undo, now)
        pending: Pending[R] = Pending(mailbox, undo)
        self._helper.submit(lambda: runner.write(verb, now, manner), pending)
        return pending

    def read(self, verb: Callable[[View], R], *, lasting: bool = False) -> Pending[R]:
        pending: Pending[R] = Pending(self._mailboxes.current())
        self._helper.submit(lambda: self._runner.read(verb, lasting=lasting), pending)
        return pending

    def _undoing(self, undo: Undo, now: Now) -> Callable[[Any], None]:
        def undo_answer(answer: Any) -> None:
            verb = undo(answer)
            if verb is not None:
                self._helper.submit(lambda: self._runner.write(verb, now), NOBODY)

        return undo_answer


class _Led(Pending[R]):
    """A call that the runner's own helper leads; the runner undoes what nobody will see."""

    __slots__ = ("_runner", "call")

    call: Call[R]

    def __init__(self, mailbox: Mailbox, runner: FileRunner) -> None:
        super().__init__(mailbox)
        self._runner = runner

    def lose(self, answer: R, error: BaseException | None) -> None:
        self._runner.abandon(self.call)

    def _abandon(self) -> None:
        super()._abandon()
        if self._future.cancelled():
            # Now: the loop may be gone before the answer comes.
            self._runner.abandon(self.call)


def make_awaitable(store: SQLStore, runner: Runner, wakeups: Wakeups) -> QueueStore:
    return cast("QueueStore", AwaitableSQLStore(store, runner, wakeups))
