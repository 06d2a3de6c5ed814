"""The queues that a worker serves, and the store they share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localqueue.clock import StoreTime
from localqueue.codec import Codec, readable_codecs
from localqueue.commits.open import commit_for
from localqueue.commits.protocol import Commit
from localqueue.errors import ConfigurationError, InvalidArgument, WrongType
from localqueue.policies.resolved import trait
from localqueue.queue import PersistentQueue
from localqueue.rule import FailurePolicy
from localqueue.stores.protocol import LeaseRequest, QueueStore
from localqueue.telemetry.emitter import Emitter

TWO_STORES = "the queues of one worker share a store; start a worker for each store"


@dataclass(slots=True, eq=False)
class Source:
    """One queue, and what its worker does with its messages."""

    queue: PersistentQueue[Any]
    name: str
    policy: FailurePolicy
    commit: Commit | None
    removes: bool
    """At most once: what was leased is gone already."""
    emitter: Emitter


@dataclass(frozen=True, slots=True)
class Group:
    """Queues that one lease can take from."""

    request: LeaseRequest
    codec: Codec

    def asking(self, turn: int, limit: int) -> LeaseRequest:
        """For up to ``limit`` messages, each time beginning with another queue."""
        names = self.request.queues
        at = turn % len(names)
        queues = names[at:] + names[:at] if at else names
        return replace(self.request, queues=queues, limit=limit)


class Sources:
    """All queues of a worker, opened."""

    def __init__(
        self,
        queues: Sequence[PersistentQueue[Any]],
        policies: Sequence[FailurePolicy],
        worker_id: str | None,
    ) -> None:
        self.store, self.when = _one_store(queues)
        self.names = tuple(queue.name for queue in queues)
        self.worker_id = worker_id
        self.lease_timeout = min(queue.lease_timeout for queue in queues)
        self._by_name = {
            queue.name: Source(
                queue,
                queue.name,
                policy,
                commit_for(queue),
                trait(queue.delivery_policy, "ack_timing", None) == "before-delivery",
                queue.telemetry,
            )
            for queue, policy in zip(queues, policies, strict=True)
        }

    def __iter__(self) -> Iterator[Source]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Source:
        return self._by_name[name]

    def are_plain(self) -> bool:
        """Whether a success of any of them is an acknowledgement and nothing else."""
        return all(s.commit is None and not s.removes for s in self._by_name.values())

    def is_anyone_listening(self) -> bool:
        return any(source.emitter.active for source in self._by_name.values())

    def groups(self, liveness: str | None) -> list[Group]:
        """How to lease from them: together, as far as they are alike."""
        together: dict[Any, list[Source]] = {}
        for source in self._by_name.values():
            queue = source.queue
            codecs = readable_codecs(queue.codec_policy)
            alike = (source.removes, queue.lease_timeout, codecs)
            together.setdefault(alike, []).append(source)
        return [
            Group(
                LeaseRequest(
                    tuple(source.name for source in sources),
                    timeout=timeout,
                    worker=self.worker_id,
                    liveness=liveness,
                    remove=removes,
                    codecs=codecs,
                    prefetched=not removes,
                ),
                sources[0].queue.codec_policy,
            )
            for (removes, timeout, codecs), sources in together.items()
        ]


def check_queues(queues: Any) -> tuple[PersistentQueue[Any], ...]:
    """One queue or several, each once."""
    if isinstance(queues, PersistentQueue):
        return (queues,)
    if not isinstance(queues, Iterable):
        raise WrongType(f"a worker serves a PersistentQueue, not {type(queues).__name__}")
    given = tuple(queues)
    if not given:
        raise InvalidArgument("a worker needs at least one queue")
    for queue in given:
        if not isinstance(queue, PersistentQueue):
            raise WrongType(f"a worker serves PersistentQueues, not {type(queue).__name__}")
    if len({queue.name for queue in given}) != len(given):
        raise InvalidArgument("a worker serves each queue once")
    places = [queue._attachment.place for queue in given]
    if any(place != places[0] for place in places[1:]):
        raise ConfigurationError(TWO_STORES)
    return given


def _one_store(queues: Sequence[PersistentQueue[Any]]) -> tuple[QueueStore, StoreTime]:
    """The store of all these queues; of several objects for one file, the most careful one."""
    stores = [queue.store for queue in queues]
    if any(not _is_same(stores[0], other) for other in stores[1:]):
        raise ConfigurationError(TWO_STORES)
    careful = [getattr(store, "durability", "full") == "full" for store in stores]
    at = careful.index(True) if any(careful) else 0
    # Its time goes with it.
    return queues[at]._opened()


def _is_same(one: QueueStore, other: QueueStore) -> bool:
    if one is other:
        return True
    paths = getattr(one, "path", None), getattr(other, "path", None)
    if None in paths or type(one) is not type(other):
        return False
    return os.path.realpath(str(paths[0])) == os.path.realpath(str(paths[1]))
