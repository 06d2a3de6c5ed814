"""Consumer groups: who reads the journal, how far each is, and taking one away."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from localqueue import Journal, PersistentQueue
from localqueue.cli.app import run
from localqueue.errors import ConfigurationError, InvalidArgument, StoreMissing
from localqueue.spark.leadership import Leadership
from localqueue.spark.pipeline.groups import groups, remove_group
from localqueue.spark.stream.consumer_group import RECORD
from localqueue.stores.records import RecordChange
from tests.pipeline.archives import now

Shown = pytest.CaptureFixture[str]


@pytest.fixture
def queue(url: str) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store=url) as queue:
        yield queue


def test_a_group_is_listed_with_its_position_lag_and_age(
    queue: PersistentQueue[Any], url: str
) -> None:
    other = PersistentQueue[Any]("mails", store=url)
    began = now(queue)
    queue.put_many(range(3))
    queue.register_reader("billing")
    queue.commit_reader("billing", queue.store.journal_end())
    read = int(queue.store.journal_end()[16:], 16)
    queue.register_reader("audit", max_age=3600)
    queue.commit_reader("audit", queue.store.journal_end())
    queue.put_many(range(4))
    put = now(queue)
    other.put("x")

    audit, billing = groups(url)

    assert (audit.name, billing.name) == ("audit", "billing")
    assert (billing.position, billing.lag) == (read, 6)
    assert began <= billing.moved_at <= now(queue)
    assert 0 <= billing.age < 60
    assert (audit.kept_for, billing.kept_for) == (3600, 30 * 86_400)
    assert billing.oldest_at is not None
    assert began < billing.oldest_at < put
    assert billing.is_running is False
    queue.commit_reader("billing", queue.store.journal_end())
    assert [(group.lag, group.oldest_at) for group in groups(url)][1] == (0, None)
    other.close()


def test_what_was_trimmed_unread_is_no_lag(url: str) -> None:
    few = PersistentQueue[Any]("jobs", store=url, journal_policy=Journal(max_rows=10))
    few.register_reader("late", max_age=0.001)
    for _ in range(8):
        few.put_many(["x"] * 1000)

    (late,) = groups(url)

    assert 0 < late.lag < 8000
    assert late.oldest_at is not None
    assert late.oldest_at > late.moved_at
    few.close()


def test_a_group_that_is_removed_holds_nothing_any_more(
    queue: PersistentQueue[Any], url: str
) -> None:
    queue.register_reader("billing")
    queue.register_reader("audit")
    started = RecordChange(RECORD, "billing", b"{}")
    queue.store.change_records([started], now=now(queue).timestamp())

    gone = remove_group(url, "billing")

    assert gone.name == "billing"
    assert [group.name for group in groups(url)] == ["audit"]
    assert queue.store.scan_records(RECORD, now=0.0) == []
    with pytest.raises(InvalidArgument, match="no consumer group 'billing'; there are: audit"):
        remove_group(url, "billing")


def test_a_group_that_is_being_read_with_stays(queue: PersistentQueue[Any], url: str) -> None:
    queue.put("x")
    queue.register_reader("billing")
    query = Leadership(queue.store, "billing")

    assert [group.is_running for group in groups(url)] == [True]
    with pytest.raises(ConfigurationError, match="'billing' is being read with"):
        remove_group(url, "billing")
    query.close()

    assert remove_group(url, "billing").name == "billing"


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        groups(f"sqlite:///{tmp_path / 'missing.sqlite3'}")

    assert list(tmp_path.iterdir()) == []


# --- the command ----------------------------------------------------------------------------------
def test_the_command_lists_groups_and_takes_one_away_only_when_told_so(
    queue: PersistentQueue[Any], url: str, capsys: Shown
) -> None:
    command = ["pipeline", "groups", url.removeprefix("sqlite:///")]
    queue.put("x")
    assert run(command) == 0
    assert capsys.readouterr().err == "localqueue: the store has no consumer groups\n"
    queue.register_reader("pipeline:default")
    queue.register_reader("audit")
    queue.put("y")

    assert run([*command, "--json"]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(group["name"], group["lag"]) for group in listed] == [
        ("audit", 3),
        ("pipeline:default", 3),
    ]
    assert datetime.fromisoformat(listed[0]["moved_at"]) < now(queue) + timedelta(minutes=1)
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^audit +\d+ +3 +20\d\d-.* +30 d +false$", shown, re.MULTILINE)

    assert run([*command, "--remove", "audit"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert len(queue.readers()) == 2
    assert run([*command, "--remove", "audit", "--yes"]) == 0
    assert capsys.readouterr().out == "audit is gone; 3 events are not kept for it any more\n"
    assert [reader.name for reader in queue.readers()] == ["pipeline:default"]
    assert run([*command, "--remove", "audit", "--yes"]) == 2
    assert "no consumer group 'audit'" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 130, 1), ("y", 0, 0)])
def test_the_command_asks_a_person(
    queue: PersistentQueue[Any], url: str, answer: str, code: int, left: int
) -> None:
    queue.register_reader("audit")
    command = [sys.executable, "-m", "localqueue.cli", "pipeline", "groups", url]
    terminal, its_end = pty.openpty()

    process = subprocess.Popen(
        [*command, "--remove", "audit"], stdin=its_end, stdout=its_end, stderr=its_end
    )
    os.close(its_end)
    question = b""
    while not question.endswith(b"[y/N]: "):
        question += os.read(terminal, 1000)
    os.write(terminal, f"{answer}\n".encode())

    assert process.wait(60) == code
    assert b"Take away audit? " in question
    assert len(queue.readers()) == left
    os.close(terminal)
