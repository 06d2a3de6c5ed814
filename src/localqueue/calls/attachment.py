"""What a queue object knows of its store: opened with the first call, closed once."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from localqueue.clock import Clock, StoreTime
from localqueue.errors import StoreClosed
from localqueue.fanout import add_subscribers
from localqueue.policies.resolved import ResolvedPolicies
from localqueue.stores.open import as_store, default_path
from localqueue.stores.protocol import QueueStore, StoreCapabilities
from localqueue.stores.settings import QueueSettings
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.telemetry.emitter import Emitter
from localqueue.telemetry.subscription import Listener
from localqueue.unfinished import Unfinished


class Attachment:
    """One queue object's store, its time, the settings it last saw, and what it handed out."""

    def __init__(
        self,
        policies: ResolvedPolicies,
        store: QueueStore | str | Any,
        path: str | Path | None,
        clock: Clock,
        listeners: Iterable[Listener] = (),
    ) -> None:
        self.policies = policies
        self.name = policies.name
        self.clock = clock
        self.when: StoreTime | None = None
        """Store time. None before the first call and after ``close``: ``open`` has to be called."""
        self.settings: tuple[QueueSettings, int] | None = None
        """As this object last saw them, with their version; the store has the last word."""
        self.warned = False
        self.unfinished = Unfinished()
        self.emitter = Emitter(policies.name, self._moment, listeners)
        self._path = path
        self._store: QueueStore | None = None if store is None else as_store(store)
        self._owns_store = store is None or isinstance(store, str)
        self._closed = False
        self.renew_locks()
        _attachments.add(self)

    @property
    def capabilities(self) -> StoreCapabilities:
        """What the store can promise, without opening it."""
        return (self._store or SQLiteQueueStore).capabilities

    @property
    def place(self) -> object:
        """Equal for queues of one store, without opening it: its path, or the store itself."""
        path = self._path
        if self._store is not None:
            path = getattr(self._store, "path", None)
            if path is None:
                return id(self._store)
        return os.path.realpath(default_path() if path is None else path)

    @property
    def store(self) -> QueueStore:
        """The store, opened if it was not."""
        if self.when is None:
            self.open()
        store = self._store
        assert store is not None
        return store

    def open(self) -> StoreTime:
        """Open the store and write what the user configured, if that was not done; its time.

        May block for as long as the store is busy. StoreClosed after ``close``.
        """
        with self._first_use:
            if self._closed:
                raise StoreClosed(f"queue {self.name!r} was closed")
            if self.when is not None:
                return self.when
            store = self._store
            if store is None:
                store = self._store = SQLiteQueueStore(
                    default_path() if self._path is None else self._path
                )
            when = StoreTime(self.clock, store.open_clock(self.clock))
            explicit = self.policies.explicit_settings
            if explicit:
                self.settings = store.configure(self.name, explicit, now=when.now)
            if self.policies.routing_policy.fanout:
                add_subscribers(store, self.policies, when.now)
            self.when = when
            return when

    def close(self) -> None:
        """Give up the store if it was opened here; ``open`` raises from now on. Idempotent."""
        with self._first_use:
            self._closed = True
            self.when = None
            if self._owns_store and self._store is not None:
                self._store.close()

    def renew_locks(self) -> None:
        """In a forked child: whoever held them did not come along."""
        self._first_use = threading.Lock()
        self.unfinished.renew_locks()
        self.emitter.renew_locks()

    def _moment(self) -> float:
        """Now, as messages show their times."""
        when = self.when
        return self.clock.wall() if when is None else when.to_wall(when.now())

    def __repr__(self) -> str:
        return repr(self._store)


_attachments: weakref.WeakSet[Attachment] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for attachment in list(_attachments):
        attachment.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
