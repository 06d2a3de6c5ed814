"""The pages of docs/ are what the tables of the code say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "generate_docs.py"


@pytest.fixture
def script() -> ModuleType:
    found = importlib.util.spec_from_file_location("generate_docs", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_no_page_is_outdated(script: ModuleType) -> None:
    assert script.outdated() == {}, "run: python scripts/generate_docs.py"


@pytest.mark.parametrize("page", ["compatibility.md", "guarantees.md"])
def test_a_row_that_was_changed_by_hand_is_noticed_and_written_anew(
    script: ModuleType, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in script.PAGES:
        (tmp_path / name).write_text((script.DOCS / name).read_text(), encoding="utf-8")
    good = (tmp_path / page).read_text()
    by_hand, mark, generated = good.partition("<!-- generated")
    changed = by_hand + mark + generated.replace(" | ", " | perhaps ", 5)
    (tmp_path / page).write_text(changed, encoding="utf-8")
    monkeypatch.setattr(script, "DOCS", tmp_path)

    assert script.main(["--check"]) == 1
    assert list(script.outdated()) == [tmp_path / page]

    assert script.main([]) == 0
    assert (tmp_path / page).read_text() == good
    assert script.main(["--check"]) == 0


def test_what_is_written_by_hand_around_the_table_stays(script: ModuleType) -> None:
    page = f"# Title\n\nBefore.\n\n{script.BEGIN}old\n{script.END}\nAfter.\n"

    assert script.renewed(page, "new\n") == (
        f"# Title\n\nBefore.\n\n{script.BEGIN}\nnew\n\n{script.END}\nAfter.\n"
    )


@pytest.mark.parametrize("mark", ["BEGIN", "END"])
def test_a_page_without_its_marks_is_an_error(script: ModuleType, mark: str) -> None:
    page = f"{script.BEGIN}{script.END}".replace(getattr(script, mark), "")

    with pytest.raises(ValueError, match=mark.lower()):
        script.renewed(page, "table\n")
