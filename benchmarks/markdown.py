"""Tables as Markdown that can also be read as it is."""

from __future__ import annotations

from collections.abc import Sequence


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table with its columns under each other."""
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    return [
        _line(heads, widths),
        _line(["-" * width for width in widths], widths),
        *(_line(cells, widths) for cells in lines),
    ]


def duration(seconds: float | None) -> str:
    """In microseconds, or in milliseconds where those would be unreadable; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 0.01:
        return f"{seconds * 1e6:,.1f} µs"
    return f"{seconds * 1e3:,.1f} ms"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"
