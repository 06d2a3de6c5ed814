"""Other queues are measured in the same way as this one, and one that fails does not win."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import ours, race, raw_sqlite
from benchmarks.peers.contestant import Contestant, Entrant
from benchmarks.peers.entrants import ENTRANTS, rival
from benchmarks.peers.process import ContestantFailed, ContestantProcess


def test_peers_are_compared_with_ours_of_the_same_promise(tmp_path: Path) -> None:
    absent = Entrant("nowhere", "peer", raw_sqlite.RawSQLite, needs=("no_such_module",))
    entrants = (ours.LEASED, ours.AT_MOST_ONCE, raw_sqlite.ENTRANT, absent)

    relaxed, full = race.run(tmp_path, size=20, calls=5, rounds=2, warm_up=1, entrants=entrants)

    assert [relaxed.condition, full.condition] == ["durability relaxed", "durability full"]
    assert relaxed.columns == ["put", "get + ack", "put, 20 waiting", "get + ack, 20 waiting"]
    for standings in (relaxed, full):
        assert [line.name for line in standings.lines] == [one.name for one in entrants[:3]]
        leased, at_most_once, raw = standings.lines
        assert [cell and cell.ratio for cell in leased.cells] == [1.0] * 4
        assert [cell and cell.ratio for cell in at_most_once.cells] == [None, 1.0] * 2
        assert all(cell and cell.seconds > 0 and cell.ratio > 0 for cell in raw.cells)
        assert "no_such_module" in standings.remarks[0]
        assert "sync --group benchmarks" in standings.remarks[0]


def test_every_entrant_has_its_rival_and_says_what_it_needs() -> None:
    assert [entrant.kind for entrant in ENTRANTS].count("peer") >= 6
    for entrant in ENTRANTS:
        assert rival(entrant).kind == "ours"
        assert rival(entrant).acknowledges == entrant.acknowledges
        assert bool(entrant.needs) == (entrant.kind == "peer")


class LosesOne(raw_sqlite.RawSQLite):
    def take(self, count: int) -> list[dict[str, object]]:
        return list(super().take(count + 1))[1:]


def refuses(folder: Path, durability: str) -> Contestant:
    raise OSError("the server did not start")


@pytest.mark.parametrize(
    ("opens", "words"), [(LosesOne, "AssertionError"), (refuses, "the server did not start")]
)
def test_a_contestant_that_fails_is_told_with_its_own_traceback(
    opens: type[Contestant], words: str, tmp_path: Path
) -> None:
    entrant = Entrant("faulty", "peer", opens)

    def take_one() -> None:
        with ContestantProcess(entrant, tmp_path, "relaxed") as contestant:
            contestant.fill(2)
            contestant.take(0, 1)

    with pytest.raises(ContestantFailed, match=rf"(?s)faulty:.*{words}"):
        take_one()
