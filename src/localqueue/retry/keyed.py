"""What a persistent retry is, whether functions or coroutine functions are retried."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar, cast

from localqueue.retry.options import RetryOptions
from localqueue.retry.record import RetryRecord

F = TypeVar("F", bound=Callable[..., Any])


class Retried(Protocol):
    """What a decorated function offers beside being called."""

    retry: Any
    statistics: dict[str, Any]
    retry_with: Callable[..., Any]


class KeyedRetry(ABC):
    """The options of a retry, its records, and its copies."""

    def __init__(self, **options: Any) -> None:
        self._options = RetryOptions(**options)
        self._local = threading.local()

    @property
    def statistics(self) -> dict[str, Any]:
        """Tenacity's statistics of the call that began last in this thread."""
        return cast("dict[str, Any]", self._local.__dict__.setdefault("statistics", {}))

    def get_record(self, key: str) -> RetryRecord | None:
        """What is recorded under a key, if anything. Blocks for as long as the store does."""
        return self._options.get_record(key)

    def reset(self, key: str) -> None:
        """Forget the key: its budget is whole again. Blocks for as long as the store does."""
        self._options.reset(key)

    def copy(self, **changes: Any) -> Self:
        """The same retry with some options changed; ``max_tries`` replaces a ``stop``."""
        copy = type(self).__new__(type(self))
        copy._options = self._options.changed(changes)
        copy._local = threading.local()
        return copy

    @abstractmethod
    def wraps(self, fn: F) -> F:
        """The function, retried, with ``retry``, ``retry_with(**changes)`` and ``statistics``."""

    def _offers(self, retried: Callable[..., Any], fn: Callable[..., Any]) -> Retried:
        """The retried form of ``fn``, with what it offers."""

        def retry_with(**changes: Any) -> Callable[..., Any]:
            return self.copy(**changes).wraps(fn)

        offers = cast("Retried", retried)
        offers.retry, offers.retry_with, offers.statistics = self, retry_with, {}
        return offers
