"""Looking into an outbox: for programs that send what is there themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from localqueue.commits.home import Home
from localqueue.commits.keys import all_envelopes
from localqueue.errors import ConfigurationError
from localqueue.policies.resolved import trait
from localqueue.queue import PersistentQueue
from localqueue.results.records import KIND, ResultRecords, decode_result


def outbox_envelopes(queue: PersistentQueue[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The envelopes of a queue that nobody has removed, each with its key, in the order of keys.

    Read in slices: what is written or deleted meanwhile may be seen or not. ConfigurationError when
    the outbox is a store of the user's own kind, which only that can list.
    """
    home = Home.of(queue)
    policy = trait(queue.delivery_policy, "commit_policy", None)
    given = getattr(policy, "outbox_store", None)
    if isinstance(given, ResultRecords):
        home = replace(home, store=given.store)
    elif given is not None:
        raise ConfigurationError(
            f"the envelopes of queue {queue.name!r} are in a {type(given).__name__}, which cannot"
            " be listed from here"
        )
    return _envelopes(home, all_envelopes("outbox", queue.name))


def _envelopes(home: Home, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for record in home.scan(KIND, prefix):
        yield record.key, decode_result(record.value, record.key)
