"""How the main job shows what it did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    lines = [titles, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print(f"  {'  '.join(cells).rstrip()}")
