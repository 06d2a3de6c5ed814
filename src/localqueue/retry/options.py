"""The options of a persistent retry: what is ours, what is Tenacity's, and their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tenacity import (
    BaseRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_never,
    wait_exponential,
    wait_fixed,
)

from localqueue.errors import ConfigurationError, InvalidArgument, WrongType
from localqueue.retry.attempts import Attempts
from localqueue.retry.default_store import default_store
from localqueue.retry.keys import KeyFunction, check_key_function, resolve_key
from localqueue.retry.protocol import AttemptStore
from localqueue.retry.record import RetryRecord
from localqueue.retry.sqlite import SQLiteAttemptStore
from localqueue.retry.strategies import check_strategies

TENACITY = frozenset(inspect.signature(BaseRetrying.__init__).parameters) - {"self"}
_ALTERNATIVES = (("store", "store_path"), ("key", "key_fn"), ("max_tries", "stop"))
"""Two ways to say one thing: a retry has one of them, and a change of one replaces the other."""


class RetryOptions:
    """What both kinds of persistent retry are made of. A value: nothing changes it."""

    def __init__(
        self,
        *,
        store: AttemptStore | None = None,
        store_path: str | Path | None = None,
        key: str | None = None,
        key_fn: KeyFunction | None = None,
        clear_on_success: bool = True,
        max_tries: int | None = None,
        count_crashes: bool = False,
        **tenacity: Any,
    ) -> None:
        given = {
            "store": store,
            "store_path": store_path,
            "key": key,
            "key_fn": key_fn,
            "clear_on_success": clear_on_success,
            "max_tries": max_tries,
            "count_crashes": count_crashes,
            **tenacity,
        }
        for name in sorted(tenacity.keys() - TENACITY):
            raise WrongType(f"{name!r} is neither an option of a persistent retry nor of Tenacity")
        for one, other in _ALTERNATIVES:
            if given.get(one) is not None and given.get(other) is not None:
                raise ConfigurationError(f"pass either {one}= or {other}=, not both")
        if max_tries is not None and (type(max_tries) is not int or max_tries < 1):
            raise InvalidArgument(f"max_tries must be a positive integer, not {max_tries!r}")
        check_strategies(tenacity)
        if key_fn is not None and not callable(key_fn):
            raise WrongType(f"key_fn must be callable, not {type(key_fn).__name__}")
        self._given = given
        self._key, self._key_fn = key, key_fn
        self._store = SQLiteAttemptStore(store_path) if store_path is not None else store
        self._clear_on_success = clear_on_success
        self._count_crashes = count_crashes
        self.tenacity = _with_defaults(tenacity, max_tries)

    @property
    def enabled(self) -> bool:
        return bool(self.tenacity.get("enabled", True))

    def changed(self, changes: Mapping[str, Any]) -> RetryOptions:
        """The same options but for these; one of an alternative replaces the other."""
        options = dict(self._given)
        for one, other in (*_ALTERNATIVES, *(pair[::-1] for pair in _ALTERNATIVES)):
            if changes.get(one) is not None:
                options.pop(other, None)
        copy = RetryOptions(**(options | dict(changes)))
        if not {"store", "store_path"} & changes.keys():
            copy._store = self._store  # one file is opened once, however many copies there are
        return copy

    def store(self) -> AttemptStore:
        """Where attempts are recorded, for the calling thread."""
        return default_store() if self._store is None else self._store

    def attempts(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Attempts:
        """The account of one call; ValueError when it has no key. Nothing is read yet."""
        key = resolve_key(self._key, self._key_fn, fn, args, kwargs)
        return Attempts(
            self.store(),
            key,
            clear_on_success=self._clear_on_success,
            count_crashes=self._count_crashes,
        )

    def check(self, fn: Callable[..., Any]) -> None:
        """Refuse a function for which no call could have a key, as far as that can be told."""
        check_key_function(self._key_fn, fn)

    def get_record(self, key: str) -> RetryRecord | None:
        return self.store().load(key)

    def reset(self, key: str) -> None:
        self.store().delete(key)


def _with_defaults(tenacity: Mapping[str, Any], max_tries: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "wait": wait_exponential(multiplier=1, min=2, max=10),
        "retry": retry_if_exception_type(Exception),
        "reraise": True,
        "stop": stop_never if max_tries is None else stop_after_attempt(max_tries),
    }
    # None is how an option is left out by those who pass on what they were given.
    for name, value in tenacity.items():
        if value is not None or name not in options:
            options[name] = value
    if isinstance(options["wait"], (int, float)):
        options["wait"] = wait_fixed(options["wait"])
    return options
