"""A store from a URL, a path or an object."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from localqueue.errors import ConfigurationError, WrongType
from localqueue.stores.masking import masked
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.minimal import MinimalStore
from localqueue.stores.protocol import QueueStore
from localqueue.stores.sqlite.store import SQLiteQueueStore

_SQLITE_OPTIONS = {"durability": str, "timeout": float}


def open_store(url: str) -> QueueStore:
    """The store that a URL names.

    ``sqlite:///jobs.sqlite3?durability=relaxed`` is a file in the current folder,
    ``sqlite:////var/lib/jobs.sqlite3`` an absolute path, ``memory://`` a new store in memory.
    """
    if not isinstance(url, str):
        raise WrongType(f"a store URL must be a string, not {type(url).__name__}")
    shown = masked(url)
    scheme, colon, rest = url.partition("://")
    if not colon:
        raise ConfigurationError(
            f"{shown!r} is not the URL of a store; use sqlite:///file or memory://, or give a path"
            " as store_path="
        )
    path, _, query = rest.partition("?")
    match scheme.lower():
        case "sqlite":
            if not path.startswith("/") or len(path) < 2:
                raise ConfigurationError(
                    f"{shown!r} names no file; write sqlite:///name.sqlite3, or four slashes for an"
                    " absolute path"
                )
            options = _options(url, query, _SQLITE_OPTIONS)
            return SQLiteQueueStore(unquote(path[1:]), **options)
        case "memory":
            if path:
                raise ConfigurationError(f"{shown!r}: a store in memory has no name; use memory://")
            _options(url, query, {})
            return MemoryQueueStore()
    raise ConfigurationError(f"{scheme!r} is not a kind of store; use sqlite:///file or memory://")


def absolute_url(url: str) -> str:
    """The same store for those who are in another folder: a path from here becomes a whole one."""
    scheme, colon, rest = url.partition("://")
    if scheme.lower() != "sqlite" or not rest.startswith("/") or rest[1:2] in ("", "/", "?"):
        return url
    path, question, query = rest[1:].partition("?")
    return f"{scheme}{colon}/{quote(str(Path(unquote(path)).absolute()))}{question}{query}"


def as_store(store: Any) -> QueueStore:
    """A store object, a URL, or a custom object with the simple verbs only."""
    if isinstance(store, str):
        return open_store(store)
    if isinstance(store, type):
        raise WrongType(f"store must be an object, not a class: write {store.__name__}(...)")
    if hasattr(store, "settle_and_lease"):
        checked: QueueStore = store
        return checked
    if hasattr(store, "enqueue") and hasattr(store, "dequeue"):
        return MinimalStore(store)
    raise WrongType(
        f"store must be a queue store or a URL such as sqlite:///jobs.sqlite3, not"
        f" {type(store).__name__}; a path is given as store_path="
    )


def default_path() -> Path:
    """Where queues are kept when nothing else is said: the user's data folder."""
    home = os.environ.get("XDG_DATA_HOME")
    folder = Path(home) if home else Path.home() / ".local" / "share"
    return folder / "localqueue" / "queue.sqlite3"


def _options(url: str, query: str, known: dict[str, type]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ConfigurationError(
                f"{masked(url)!r}: unknown option {name!r}; known are"
                f" {', '.join(sorted(known)) or 'none'}"
            )
        try:
            options[name] = known[name](text)
        except ValueError:
            raise ConfigurationError(f"{masked(url)!r}: {name}={text!r} is not a number") from None
    return options
