"""A store from a URL, a path or an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localqueue import PersistentQueue
from localqueue.errors import (
    ConfigurationError,
    InvalidArgument,
    WrongType,
)
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.open import absolute_url, as_store, open_store
from localqueue.stores.sqlite.store import SQLiteQueueStore


def test_a_url_names_a_file_its_durability_and_its_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    relative = open_store("sqlite:///jobs.sqlite3?durability=relaxed&timeout=2.5")
    absolute = open_store("sqlite:////var/lib/my%20jobs.sqlite3")
    hashed = open_store("sqlite:///a#b.sqlite3")

    assert isinstance(relative, SQLiteQueueStore)
    assert relative.path == tmp_path / "jobs.sqlite3"
    assert (relative.durability, relative.timeout) == ("relaxed", 2.5)
    assert isinstance(absolute, SQLiteQueueStore)
    assert absolute.path == Path("/var/lib/my jobs.sqlite3")
    assert (absolute.durability, absolute.timeout) == ("full", 15.0)
    assert isinstance(hashed, SQLiteQueueStore)
    assert hashed.path.name == "a#b.sqlite3"
    assert list(tmp_path.iterdir()) == []


def test_a_url_names_memory() -> None:
    assert isinstance(open_store("memory://"), MemoryQueueStore)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "not the URL of a store"),
        ("jobs.sqlite3", "not the URL of a store"),
        ("sqlite:jobs.sqlite3", "not the URL of a store"),
        ("sqlite:/jobs.sqlite3", "not the URL of a store"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite://jobs.sqlite3", "names no file"),
        ("sqlite:///jobs?durability=some", "durability must be"),
        ("sqlite:///jobs?timeout=soon", "not a number"),
        ("sqlite:///jobs?colour=red", "unknown option 'colour'"),
        ("memory://jobs", "has no name"),
        ("memory://?size=5", "unknown option 'size'"),
        ("carrier-pigeon://coop", "not a kind of store"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_what_to_write(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("sqlite:///jobs?timeout=-1", InvalidArgument),
        ("sqlite:///jobs?timeout=nan", InvalidArgument),
        ("sqlite:///jobs%00", InvalidArgument),
        (5, WrongType),
        (None, WrongType),
    ],
)
def test_a_url_with_a_value_that_means_nothing_is_refused(url: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        open_store(url)


@pytest.mark.parametrize("path", [5, None, b"jobs.sqlite3"])
def test_a_path_is_text_or_a_path(path: Any) -> None:
    with pytest.raises(WrongType, match="path must be a string or a Path"):
        SQLiteQueueStore(path)


def test_an_object_that_is_no_store_is_refused_when_the_queue_is_built() -> None:
    for wrong in (object(), Path("jobs.sqlite3"), {}, SQLiteQueueStore):
        with pytest.raises(WrongType, match="store must be"):
            as_store(wrong)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///jobs.sqlite3", "jobs.sqlite3"),
        ("SQLite:///a/b.sqlite3?durability=relaxed", "a/b.sqlite3"),
        ("sqlite:///50%25%20of%3Fit.sqlite3", "50% of?it.sqlite3"),
    ],
)
def test_a_url_from_here_is_the_same_store_elsewhere(
    url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    whole = absolute_url(url)
    PersistentQueue[int]("jobs", store=url).put(1)
    monkeypatch.chdir("/")

    assert PersistentQueue[int]("jobs", store=whole).get_nowait() == 1
    assert (tmp_path / path).exists()
    assert absolute_url(whole) == whole


@pytest.mark.parametrize("url", ["sqlite:////a.sqlite3", "memory://", "sqlite:///", "a.sqlite3"])
def test_what_has_no_path_from_here_stays(url: str) -> None:
    assert absolute_url(url) == url
