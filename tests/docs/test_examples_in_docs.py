"""Every Python block of README.md and docs/ runs, and shows what it says it shows.

The blocks of a page share their names, as if they were typed one after the other. What a statement
shows is written behind or below it, ``# → 3``; an error that it must raise, ``# raises Empty``.
Blocks of other languages are not run.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from localqueue import LocalQueueError, MemoryQueueStore, PersistentQueue, SQLiteQueueStore

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BEHIND = re.compile(r"  # (→|raises) (.*)$")
_BELOW = re.compile(r"^# → ?(.*)$")


class Step(NamedTuple):
    """A statement at the top level of a block, and what the page says about it."""

    line: int
    code: ast.stmt
    shows: str | None
    raises: str | None


def steps_of(page: str) -> Iterator[Step]:
    for block in _BLOCK.finditer(page):
        source = block[1]
        lines = source.splitlines()
        offset = page.count("\n", 0, block.start(1))
        for statement in ast.parse(source).body:
            end = statement.end_lineno or statement.lineno
            behind = _BEHIND.search(lines[end - 1])
            shows = [behind[2]] if behind and behind[1] == "→" else []
            for line in lines[end:]:
                if (below := _BELOW.match(line)) is None:
                    break
                shows.append(below[1])
            raises = behind[2] if behind and behind[1] == "raises" else None
            first = statement.lineno + offset
            ast.increment_lineno(statement, offset)
            yield Step(first, statement, "\n".join(shows) or None, raises)


def run_page(page: str, name: str) -> None:
    """Run the blocks of a page; AssertionError when one shows something else than it says."""
    names: dict[str, Any] = {"__name__": "page"}
    try:
        for step in steps_of(page):
            where = f"{name}:{step.line}"
            shown, raised = _run(step.code, names, where)
            if raised is not None and step.raises != type(raised).__name__:
                raise AssertionError(f"{where} raises {raised!r}") from raised
            if step.raises is not None:
                assert raised is not None, f"{where} does not raise {step.raises}"
            if step.shows is not None:
                assert shown == step.shows, f"{where} shows {shown!r}, not {step.shows!r}"
    finally:
        for value in names.values():
            _close(value)


def _close(value: object) -> None:
    if isinstance(value, PersistentQueue):
        # A queue leaves a store that it was given open. Closed already: nothing to do.
        with contextlib.suppress(LocalQueueError):
            value.store.close()
    if isinstance(value, PersistentQueue | SQLiteQueueStore | MemoryQueueStore):
        value.close()


def _run(code: ast.stmt, names: dict[str, Any], where: str) -> tuple[str, BaseException | None]:
    """What the statement printed, or else the value it has; and what it raised."""
    printed = io.StringIO()
    value = None
    try:
        with contextlib.redirect_stdout(printed):
            if isinstance(code, ast.Expr):
                value = eval(compile(ast.Expression(code.value), where, "eval"), names)
            else:
                exec(compile(ast.Module([code], []), where, "exec"), names)
    except Exception as error:
        return "", error
    return printed.getvalue().rstrip("\n") or repr(value), None


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A page may start Java, whose Python processes later tests use from another folder.
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_python_block_of_the_page_does_what_it_says(path: Path) -> None:
    run_page(path.read_text(encoding="utf-8"), path.name)


def test_the_readme_and_most_pages_have_blocks_that_run() -> None:
    with_code = [path.name for path in PAGES if _BLOCK.search(path.read_text(encoding="utf-8"))]

    assert "README.md" in with_code
    assert len(with_code) > len(PAGES) / 2


def _page(*lines: str) -> str:
    return "\n".join(["Some text.", "```python", *lines, "```", "More."])


@pytest.mark.parametrize(
    "broken",
    [
        _page("def f(:"),
        _page("unknown_name"),
        _page("1 + 1  # → 3"),
        _page("print('a')", "# → b"),
        _page("x = 1  # → 1"),
        _page("int('1')  # raises ValueError"),
        _page("int('a')  # raises TypeError"),
        _page("x = 1") + "\n```python\nassert x == 2\n```",
    ],
)
def test_a_block_that_is_not_true_is_found(broken: str) -> None:
    with pytest.raises((AssertionError, SyntaxError)):
        run_page(broken, "page.md")


def test_what_a_true_block_says_is_accepted() -> None:
    run_page(
        _page("x = 1", "x + 1  # → 2", "int('a')  # raises ValueError")
        + "\n```python\nfor n in range(2):\n    print(n)\n# → 0\n# → 1\n```"
        + "\n```console\nnot python at all\n```",
        "page.md",
    )


def test_an_error_names_the_line_of_the_page() -> None:
    with pytest.raises(AssertionError, match=r"page\.md:4 raises NameError"):
        run_page(_page("x = 1", "unknown"), "page.md")
