"""What was measured is kept, and the page and the picture of the docs come from it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import page
from benchmarks.__main__ import NAMES, main
from benchmarks.picture import TOP, draw
from benchmarks.report import Report, Row
from benchmarks.results import Result, load, save
from benchmarks.standings import Cell, Line, Standings

STANDINGS = [
    Standings(
        "peers",
        "one by one",
        "durability relaxed",
        ["put", "get + ack"],
        [
            Line("localqueue", "ours", [Cell(1e-4, 1.0), Cell(2e-4, 1.0)]),
            Line("localqueue, at most once", "ours", [None, Cell(1e-4, 1.0)], "ack"),
            Line("swift & bare", "peer", [Cell(5e-5, 0.5, 1.0), Cell(2e-4, 2.0, 1.0)], "ack, log"),
        ],
        {"cores": 2},
    ),
    Standings(
        "peers",
        "one by one",
        "durability full",
        ["put", "get + ack"],
        [
            Line("localqueue", "ours", [Cell(1e-3, 1.0), Cell(2e-3, 1.0)]),
            Line("localqueue, at most once", "ours", [None, Cell(1e-3, 1.0)], "ack"),
        ],
        {"cores": 2},
        ["Left out: swift."],
    ),
]
REPORT = Report(
    "single", "how fast", "a message", "raw", [Row("put", 2e-6, 1e-6, 0.5, more={"CPU": 0.4})], {}
)
RESULTS: list[Result] = [*STANDINGS, REPORT]


def test_a_peer_that_is_ahead_is_a_missed_target() -> None:
    relaxed, full = STANDINGS

    assert "| 50.0 µs, 0.50 × MISSED | 200.0 µs, 2.00 × | ack, log |" in relaxed.as_table()
    assert [relaxed.missed, full.missed] == [True, False]
    assert full.as_table().endswith("|\n\nLeft out: swift.")


def test_results_are_read_back_as_they_were_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    save(path, RESULTS, NAMES)
    kept = load(path)
    assert [one.as_table() for one in kept] == [one.as_table() for one in RESULTS]

    save(path, STANDINGS[1:], NAMES)
    assert load(path) == kept[1:]


def test_the_page_and_its_picture_come_from_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "benchmarks.json", RESULTS, NAMES)
    (tmp_path / "benchmarks.md").write_text(f"Before.\n{page.BEGIN}old\n{page.END}After.\n")

    assert main(["--write", str(tmp_path)]) == 0
    assert page.outdated(tmp_path) == {}
    written = (tmp_path / "benchmarks.md").read_text()
    assert written.startswith("Before.\n")
    assert written.endswith("After.\n")
    assert all(one.as_table() in written for one in RESULTS)
    assert (tmp_path / "benchmarks.svg").read_text() == draw(STANDINGS)
    assert capsys.readouterr().out.count("wrote") == 2


@pytest.mark.parametrize("mark", ["BEGIN", "END"])
def test_a_page_without_its_marks_is_an_error(mark: str) -> None:
    text = f"{page.BEGIN}{page.END}".replace(getattr(page, mark), "")

    with pytest.raises(ValueError, match=mark.lower()):
        page.renewed(text, "table\n")


def test_the_page_in_the_docs_is_not_outdated() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"

    assert list(page.outdated(docs)) == [], "run: python -m benchmarks --write docs"


def test_the_picture_has_a_bar_for_each_figure_and_says_what_is_missing() -> None:
    drawn = ElementTree.fromstring(draw(STANDINGS))
    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in drawn.iter(f"{name}text")]
    bars = [
        (bar.get("class"), float(bar.get("width", "")))
        for bar in drawn.iter(f"{name}rect")
        if float(bar.get("y", "0")) > TOP
    ]

    assert bars[:3] == [("ours", 95.0), ("peer", 190.0), ("ours", 95.0)]
    assert len(bars) == 5 + 3
    assert texts.count("swift & bare †") == 4
    assert texts.count("has no durability full") == 2
    assert {"10,000/s", "20,000/s", "5,000/s", "1,000/s", "500/s"} <= set(texts)
