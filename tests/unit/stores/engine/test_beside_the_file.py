"""What lies beside the database: the folder of its users, the ballast, the kind of file system."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from localqueue.errors import StoreBusy, StoreFull, StoreUnsupported
from localqueue.stores.protocol import LeaseRequest
from localqueue.stores.sqlite import ballast, connection, network, open_files
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.view import Transaction
from tests.unit.stores.engine.phrases import QUEUE, SOON, lease_all, make_store, put, runner_of


def test_the_folder_goes_with_its_last_user(tmp_path: Path) -> None:
    first, second = make_store(tmp_path), make_store(tmp_path)
    folder = tmp_path / "queue.sqlite3-run"

    first.close()
    assert folder.exists()
    second.close()
    assert not folder.exists()


def test_users_that_come_and_go_at_once_never_lose_the_folder(tmp_path: Path) -> None:
    companions = Companions(tmp_path / "queue.sqlite3")
    wrong: list[int] = []

    def come_and_go() -> None:
        for _ in range(200):
            user = companions.enter()
            if not companions.folder.exists():
                wrong.append(user)
            companions.leave(user)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)

    assert not wrong
    assert not companions.folder.exists()


def test_two_names_of_a_file_share_one_folder(tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tmp_path / "queue.sqlite3")

    assert Companions(tmp_path / "other").folder == Companions(tmp_path / "queue.sqlite3").folder


@pytest.mark.usefixtures("tables_only")
def test_a_full_disk_refuses_puts_is_drained_and_takes_puts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_store(tmp_path) as store, make_store(tmp_path) as other_process:
        put(store)
        spare = tmp_path / "queue.sqlite3-run" / "ballast"
        assert spare.stat().st_size == ballast.SIZE
        monkeypatch.setattr(ballast, "_free", lambda folder: 0)

        fill_the_disk(store, monkeypatch)

        assert not spare.exists()
        for refused in (store, other_process):
            with pytest.raises(StoreFull, match="the disk is full"):
                put(refused)
        (leased,) = other_process.lease(LeaseRequest((QUEUE,), 1), now=1.0)
        assert store.ack(QUEUE, leased.id)

        monkeypatch.undo()
        monkeypatch.setattr(ballast, "LOOK_AGAIN", 0.0)
        runner_of(other_process)._holding.file.ballast._next_look = 0.0  # type: ignore[union-attr]
        put(other_process, b"resumed")
        assert spare.exists()
        put(store, b"resumed too")
        assert lease_all(store) == [b"resumed", b"resumed too"]


def fill_the_disk(store: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next transaction finds the disk full, as SQLite tells it."""
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    finish = Transaction.finish
    told: list[bool] = []

    def fail(tx: Transaction) -> None:
        finish(tx)
        if not told:
            told.append(True)
            raise full

    monkeypatch.setattr(Transaction, "finish", fail)
    with pytest.raises(StoreFull):
        put(store)  # type: ignore[arg-type]
    assert told


@pytest.mark.usefixtures("tables_only")
def test_a_call_that_needs_no_room_is_done_on_a_disk_that_just_became_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    with make_store(tmp_path) as store:
        put(store)
        failures = iter([full])
        finish = Transaction.finish

        def fail(tx: Transaction) -> None:
            finish(tx)
            for error in failures:
                raise error

        monkeypatch.setattr(Transaction, "finish", fail)

        assert lease_all(store) == [b"1"]


def test_a_network_file_system_is_refused_unless_one_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "file_system", lambda path: "nfs4")
    monkeypatch.setattr(connection, "file_system", lambda path: "nfs4")

    with pytest.raises(StoreUnsupported, match="network file system"):
        make_store(tmp_path)

    make_store(tmp_path, network_file_system=True).close()


def test_the_file_system_of_a_folder_is_known(tmp_path: Path) -> None:
    if not Path("/proc/self/mountinfo").exists():
        pytest.skip("only Linux tells")

    assert network.file_system(tmp_path)
    assert network.file_system(Path("/proc")) == "proc"


def test_another_library_has_a_file_alone_or_not_at_all(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    inode = store.path.stat().st_dev, store.path.stat().st_ino

    with pytest.raises(StoreBusy, match="close its store"), open_files.alone(inode):
        pass
    store.close()
    with open_files.alone(inode), pytest.raises(StoreBusy, match="another SQLite library"):
        make_store(tmp_path)
    make_store(tmp_path).close()
