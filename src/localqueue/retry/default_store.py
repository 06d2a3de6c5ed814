"""Where attempts are recorded when nobody says where.

Each thread has a store of its own, made by a factory when it first needs one. The factory can be
replaced, and so can the store, for all threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from localqueue.errors import WrongType
from localqueue.retry.protocol import AttemptStore
from localqueue.retry.sqlite import SQLiteAttemptStore
from localqueue.stores.open import default_path

Factory = Callable[[], AttemptStore]


def make_default_store() -> AttemptStore:
    """``retries.sqlite3`` in the user's data folder, beside the queues."""
    return SQLiteAttemptStore(default_path().with_name("retries.sqlite3"))


class DefaultStores:
    """The stores that were made so far, by thread."""

    def __init__(self) -> None:
        self.renew_locks()
        self._given: AttemptStore | None = None
        self._factory: Factory = make_default_store
        self._made: dict[int, tuple[threading.Thread, AttemptStore]] = {}

    def renew_locks(self) -> None:
        """In a forked child: whoever held them did not come along."""
        self._lock = threading.Lock()

    def store(self) -> AttemptStore:
        """The store of the calling thread."""
        with self._lock:
            if self._given is not None:
                return self._given
            found = self._made.get(threading.get_ident())
            if found is not None and found[0] is threading.current_thread():
                return found[1]
            factory = self._factory
        store = factory()
        with self._lock:
            # A thread that has ended does not close its store; the next one to need one does.
            ended = [name for name, (thread, _) in self._made.items() if not thread.is_alive()]
            left = [self._made.pop(name)[1] for name in ended]
            self._made[threading.get_ident()] = (threading.current_thread(), store)
        _close(left)
        return store

    def give(self, store: AttemptStore | None) -> None:
        with self._lock:
            self._given = store

    def use_factory(self, factory: Factory) -> None:
        with self._lock:
            self._factory = factory
            left = self._take_all()
        _close(left)

    def close(self, *, all_threads: bool) -> None:
        with self._lock:
            if all_threads:
                left = self._take_all()
            else:
                own = self._made.pop(threading.get_ident(), None)
                left = [] if own is None else [own[1]]
        _close(left)

    def _take_all(self) -> list[AttemptStore]:
        left = [store for _, store in self._made.values()]
        self._made.clear()
        return left


def _close(stores: list[AttemptStore]) -> None:
    for store in stores:
        close: Any = getattr(store, "close", None)  # four methods are enough for a store
        if close is not None:
            close()


_stores = DefaultStores()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stores.renew_locks)


def default_store() -> AttemptStore:
    """The store that a retry without ``store`` and ``store_path`` uses in this thread."""
    return _stores.store()


def configure_default_store(store: AttemptStore | None) -> None:
    """Use this store in all threads; None goes back to one store per thread.

    It stays the caller's: nobody else closes it.
    """
    _stores.give(store)


def configure_default_store_factory(factory: Factory) -> None:
    """Make the stores of threads with this from now on; those made so far are closed."""
    if not callable(factory):
        raise WrongType(f"a factory must be callable, not {type(factory).__name__}")
    _stores.use_factory(factory)


def close_default_store(all_threads: bool = False) -> None:
    """Close the default store of this thread, or of all threads; the next use makes a new one.

    A store given by ``configure_default_store`` is left alone.
    """
    _stores.close(all_threads=all_threads)
