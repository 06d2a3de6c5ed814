"""persistent_worker and persistent_async_worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from localqueue.calls.face import finish
from localqueue.errors import ConfigurationError
from localqueue.queue import PersistentQueue
from localqueue.retry.functions import (
    check_is_done_when_it_returns,
    check_is_no_generator_function,
    is_coroutine_function,
)
from localqueue.worker.arguments import Arguments
from localqueue.worker.calls import WorkerCalls
from localqueue.worker.hands import AwaitingHand, BlockingHand, Job
from localqueue.worker.options import resolve_options
from localqueue.worker_config import PersistentWorkerConfig

F = TypeVar("F", bound=Callable[..., Any])


def persistent_worker(
    queue: PersistentQueue[Any],
    *,
    config: PersistentWorkerConfig | None = None,
    worker_id: str | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Make a function a worker of this queue: each call waits for a message and handles it.

    The function gets the message's value, followed by what the call was given, and its result is
    returned. What it raises is tried again inside the lease, as Tenacity is told to; in the end the
    message is acknowledged, released or a dead letter, and an error that was the last reaches the
    caller. The lease is held meanwhile.

    Options are those of PersistentWorkerConfig and go before it; without a configuration that of
    the queue's spec is used. ``rate_limit`` is a RateLimit, ``notification_policy`` wakes a worker
    whose store cannot. ``worker_id`` is who leases, and who was seen.

    A function that cannot take the value is refused, and so is a call with arguments that it cannot
    take besides: no message is leased for it.
    """
    resolved = resolve_options(queue, config, worker_id, options)

    def decorate(handler: F) -> F:
        check_is_done_when_it_returns(
            handler, who="persistent_worker", instead="persistent_async_worker"
        )
        arguments = Arguments(handler)
        hand = BlockingHand(queue._attachment, dict(resolved.retry))
        calls = WorkerCalls(queue, resolved, hand)

        @functools.wraps(handler)
        def handle_one(*args: Any, **kwargs: Any) -> Any:
            arguments.check(args, kwargs)
            ended = finish(calls.one(Job(handler, args, kwargs)))
            if ended.error is not None:
                raise ended.error
            return ended.result

        return cast("F", handle_one)

    return decorate


def persistent_async_worker(
    queue: PersistentQueue[Any],
    *,
    config: PersistentWorkerConfig | None = None,
    worker_id: str | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """The same for a coroutine function, which it stays. No thread waits for a message."""
    resolved = resolve_options(queue, config, worker_id, options)

    def decorate(handler: F) -> F:
        check_is_no_generator_function(handler, who="persistent_async_worker")
        # A plain wrapper may return the coroutine of what it wraps.
        if not any(map(is_coroutine_function, (handler, inspect.unwrap(handler)))):
            raise ConfigurationError(
                "persistent_async_worker awaits a coroutine function;"
                " use persistent_worker for one that is not"
            )
        arguments = Arguments(handler)
        hand = AwaitingHand(queue._attachment, dict(resolved.retry))
        calls = WorkerCalls(queue, resolved, hand)

        @functools.wraps(handler)
        async def handle_one(*args: Any, **kwargs: Any) -> Any:
            arguments.check(args, kwargs)
            ended = await calls.one(Job(handler, args, kwargs))
            if ended.error is not None:
                raise ended.error
            return ended.result

        return cast("F", handle_one)

    return decorate
