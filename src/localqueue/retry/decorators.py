"""Persistent retries as decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from localqueue.retry.async_retrying import PersistentAsyncRetrying
from localqueue.retry.retrying import PersistentRetrying

F = TypeVar("F", bound=Callable[..., Any])


def persistent_retry(**options: Any) -> Callable[[F], F]:
    """Retry the function as PersistentRetrying with these options does.

    It keeps its name and signature and gets ``retry``, ``retry_with(**changes)`` and
    ``statistics``.
    """
    return PersistentRetrying(**options).wraps


def persistent_async_retry(**options: Any) -> Callable[[F], F]:
    """The same for a coroutine function, which it stays."""
    return PersistentAsyncRetrying(**options).wraps
