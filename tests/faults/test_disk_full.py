"""A disk that is full: simulated at every write of an operation, and a small real one.

Proven: puts are refused with StoreFull and nothing that was stored is damaged; consumers of other
processes take everything out; and when there is room again, puts go on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.full_disk import SIZE
from tests.faults.moments import Moments, some
from tests.faults.nursery import ROOT, Nursery, environment

FEW = 3
PUTS = {"put", "put_many", "fold", "checkpoint"}
PUTS |= {"new book", "noted put", "noted put_many", "posting", "next generation"}
SETTLES = {"get", "ack_many", "release", "dead_letter"}
SETTLES |= {"noted get", "noted ack", "noted ack_many", "heartbeat that posts"}
MOUNT = f'mount -t tmpfs -o size={SIZE} tmpfs "$0" && exec "$@"'


@pytest.mark.parametrize("few", [FEW, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", sorted(PUTS | SETTLES))
def test_a_write_that_finds_the_disk_full_refuses_puts_and_lets_everything_else_through(
    nursery: Nursery, folder: Path, name: str, few: int | None
) -> None:
    moments = Moments(nursery, folder, name)
    [counted] = moments.run("run_on_full_disk", None).answers
    assert counted.verb == "done"

    for write in some(counted.what[0], few):
        ended = moments.run("run_on_full_disk", write)
        moments.check(ended, write)
        [answer] = ended.answers

        # A checkpoint that finds no room is put off, and the put stands.
        assert answer.verb == "done" or (name in PUTS and answer.what == ["StoreFull"])
        assert ended.found == (moments.after if answer.verb == "done" else moments.before)


def on_a_small_disk(folder: Path, what: str, defect: str = "") -> dict[str, Any]:
    """Run a scenario in a mount namespace of its own, where the folder is a disk of 40 MB."""
    command = ["unshare", "-rm", "sh", "-c", MOUNT, str(folder)]
    try:
        possible = subprocess.run([*command, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare here, so no small disk can be made")
    if possible.returncode:
        pytest.skip(f"no small disk can be mounted here: {possible.stderr.decode().strip()}")
    done = subprocess.run(
        [*command, sys.executable, "-W", "ignore", "-m", "tests.faults.full_disk", what, folder],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment() | {"PLANTED_DEFECT": defect},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, "the scenario failed"
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_disk_that_the_backlog_has_filled_is_drained_and_goes_on(tmp_path: Path) -> None:
    told = on_a_small_disk(tmp_path, "fill_by_puts")

    assert told["refused"] == ["StoreFull"] * 3
    assert told["stored"] == told["counted"] > 50
    assert told["drained"] == list(range(told["stored"]))
    assert told["resumed"]


def test_a_disk_that_others_have_filled_is_drained_and_goes_on(tmp_path: Path) -> None:
    told = on_a_small_disk(tmp_path, "fill_by_others")

    assert told["refused"] == ["StoreFull"] * 2
    assert told["drained"] == list(range(500))
    assert told["resumed"]


def test_what_was_noted_before_others_filled_the_disk_is_drained_and_goes_on(
    tmp_path: Path,
) -> None:
    told = on_a_small_disk(tmp_path, "post_when_full")

    assert told["noted"] > 100
    assert told["refused"] == ["StoreFull"] * 2
    assert told["counted"] == 500
    assert told["drained"] == list(range(500))
    assert told["resumed"]


def test_where_there_is_no_room_for_a_daybook_messages_go_to_the_tables(tmp_path: Path) -> None:
    told = on_a_small_disk(tmp_path, "no_room_for_a_book")

    assert not told["found"]
    assert told["drained"] == list(range(20))
    assert told["resumed"]


def test_a_disk_that_was_full_before_the_file_was_opened_is_said_to_be_full(
    tmp_path: Path,
) -> None:
    told = on_a_small_disk(tmp_path, "open_when_full")

    assert told["refused"] == "StoreFull"
    assert told["drained"] == ["stored"]


def test_a_store_without_ballast_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the scenario failed"):
        on_a_small_disk(tmp_path, "fill_by_others", defect="NoBallast")
