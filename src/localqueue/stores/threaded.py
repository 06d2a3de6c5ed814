"""The awaitable twin of any store: its verbs run one after the other on a helper thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, cast

from localqueue.clock import Now
from localqueue.message import Receipt
from localqueue.stores.helper_threads import HelperThreads
from localqueue.stores.pending import Mailboxes, Pending
from localqueue.stores.protocol import LeaseRequest, QueueStore, Settle, StoredMessage


class ThreadedStore:
    """Has the verbs of the store it stands for, each with an answer that is to be awaited.

    What a cancelled task leased and did not see is released, and a waiter that it did not see is
    closed; everything else that was begun stands.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._helper = HelperThreads("localqueue-store")
        self._mailboxes = Mailboxes()

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        own = getattr(self._store, verb)

        def call(*args: Any, **options: Any) -> Pending[Any]:
            return self._run(partial(own, *args, **options))

        setattr(self, verb, call)
        return call

    def lease(self, request: LeaseRequest, *, now: Now) -> Pending[Sequence[StoredMessage]]:
        undo = None if request.remove else partial(self._release, now)
        return self._run(lambda: self._store.lease(request, now=now), undo)

    def settle_and_lease(
        self, settles: Sequence[Settle], request: LeaseRequest | None, *, now: Now
    ) -> Pending[Any]:
        keeps = request is None or request.remove
        undo = None if keeps else lambda answer: self._release(now, answer[1])
        return self._run(lambda: self._store.settle_and_lease(settles, request, now=now), undo)

    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Pending[Any]:
        return self._run(lambda: self._store.watch(queues, what), lambda waiter: waiter.close())

    def _run(
        self, call: Callable[[], Any], undo: Callable[[Any], object] | None = None
    ) -> Pending[Any]:
        pending: Pending[Any] = Pending(self._mailboxes.current(), undo)
        self._helper.submit(call, pending)
        return pending

    def _release(self, now: Now, leased: Sequence[StoredMessage]) -> None:
        receipts = [Receipt(one.queue, one.id, one.token) for one in leased]
        if receipts:
            self._helper.submit(lambda: self._store.release_many(receipts, now=now), NOBODY)


class _Nobody:
    """Listens to calls that nobody asked for."""

    def taken(self) -> bool:
        return True

    def finished(self, call: Any) -> None: ...

    def tell(self) -> None: ...


NOBODY = _Nobody()


def awaitable_twin(store: QueueStore) -> QueueStore:
    """The store with verbs whose answers are to be awaited: its own twin, or a thread's.

    Its type is that of the store, so that one function asks both.
    """
    own = getattr(store, "awaitable", None)
    return cast("QueueStore", ThreadedStore(store) if own is None else own())
