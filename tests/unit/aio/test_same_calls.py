"""Every call of the queue has its awaitable twin, with the same arguments and answers."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

import localqueue.aio
import localqueue.queue
from localqueue.aio import AwaitableQueue
from localqueue.queue import PersistentQueue

NOT_CALLS = {
    "aio": "leads here",
    "store": "a property, and its verbs block; `queue.aio.queue.store` is the same store",
    "from_spec": "touches no store",
    "build_worker_config": "touches no store",
    "listen": "touches no store, and listens to the twin as well",
}
OTHER_TYPES = {
    ("put_stream", "items"): "takes async iterables as well",
    ("subscriber_queue", "return"): "the twin of the subscriber's queue",
}


def methods(cls: type) -> dict[str, Any]:
    names = [name for name in dir(cls) if not name.startswith("_")]
    return {name: getattr(cls, name) for name in names if callable(getattr(cls, name))}


CALLS = sorted(methods(PersistentQueue).keys() - NOT_CALLS.keys())


def test_no_call_is_forgotten_and_none_is_invented() -> None:
    assert sorted(methods(AwaitableQueue)) == CALLS
    assert len(CALLS) > 40


@pytest.mark.parametrize("name", CALLS)
def test_a_call_and_its_twin_have_the_same_signature(name: str) -> None:
    blocking = inspect.signature(getattr(PersistentQueue, name))
    awaitable = inspect.signature(getattr(AwaitableQueue, name))

    assert [(p.name, p.kind, p.default) for p in blocking.parameters.values()] == [
        (p.name, p.kind, p.default) for p in awaitable.parameters.values()
    ]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_and_its_twin_have_the_same_types(name: str) -> None:
    names = vars(localqueue.queue) | vars(localqueue.aio)
    blocking = get_type_hints(getattr(PersistentQueue, name), names)
    awaitable = get_type_hints(getattr(AwaitableQueue, name), names)

    different = {what for what in blocking if blocking[what] != awaitable.get(what)}

    assert different == {what for call, what in OTHER_TYPES if call == name}


@pytest.mark.parametrize("name", CALLS)
def test_a_twin_is_awaited(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(AwaitableQueue, name))
