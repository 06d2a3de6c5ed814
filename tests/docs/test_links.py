"""Links lead somewhere, every page can be found from the index, and each word is defined once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
VOCABULARY = (
    "message lease receipt outcome settlement policy store adapter worker journal queue topic"
)

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \*\*(.+?)\*\*: ", re.MULTILINE)


def links(text: str) -> list[str]:
    """The links of a page that stay inside the repository."""
    return [link for link in _LINK.findall(text) if not link.startswith(("https://", "http://"))]


def anchors(text: str) -> set[str]:
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }


def broken(path: Path, text: str) -> list[str]:
    """The links of this page that lead nowhere."""
    wrong = []
    for link in links(text):
        target, _, anchor = link.partition("#")
        goal = (path.parent / target).resolve() if target else path
        if not goal.exists() or (anchor and anchor not in anchors(goal.read_text("utf-8"))):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert broken(path, path.read_text(encoding="utf-8")) == []


def test_every_page_can_be_found_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}

    assert sorted(pages - set(links(index))) == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    text = "[a](errors.md) [b](gone.md) [c](ordering.md#no-such-part) [d](ordering.md#priority)"

    assert broken(ROOT / "docs" / "index.md", text) == ["gone.md", "ordering.md#no-such-part"]


def test_the_glossary_defines_each_word_once_in_alphabetical_order() -> None:
    words = _ENTRY.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))

    assert words == sorted(set(words))
    assert sorted(set(VOCABULARY.split()) - set(words)) == []
