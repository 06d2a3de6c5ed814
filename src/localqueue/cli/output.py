"""What commands print: tables for people, lines of JSON or CSV for programs.

Answers go to stdout, remarks and progress to stderr.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Told:
    """What was said before the command."""

    debug: bool = False


told = Told()


def note(text: str) -> None:
    """A remark or an error: one line on stderr."""
    print(f"localqueue: {text}", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Plain text on stdout, at once."""
    print(text, flush=True)


def show_json(value: Mapping[str, Any]) -> None:
    """One line of JSON."""
    say(json.dumps(value, default=_as_json, ensure_ascii=False))


def show_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_as_text(cell, "") for cell in row] for row in rows)
    sys.stdout.flush()


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """Aligned columns; numbers to the right. As wide as it must be when nobody looks at it."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    cells = [list(row) for row in rows]
    for index, name in enumerate(columns):
        right = all(_is_number(row[index]) for row in cells)
        table.add_column(name, justify="right" if right and cells else "left", overflow="fold")
    for row in cells:
        table.add_row(*(_as_text(cell, "–") for cell in row))
    # Names and errors may hold [brackets], which are no markup.
    console = Console(markup=False, highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    console.width = 10_000
    with console.capture() as text:
        console.print(table)
    for line in text.get().splitlines():
        say(line.rstrip())


@contextmanager
def needs_spark() -> Iterator[None]:
    """Around imports of what the extra ``spark`` brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "localqueue":
            raise
        note(f'this command needs {error.name}; write pip install "./localqueue[spark]"')
        raise typer.Exit(1) from error


def _is_number(cell: Any) -> bool:
    if isinstance(cell, int | float):
        return True
    return cell is None or (isinstance(cell, str) and cell[:1].isdigit()) or cell in ("", "–")


def _as_text(cell: Any, missing: str) -> str:
    if cell is None:
        return missing
    if isinstance(cell, bytes | bytearray):
        return f"<{len(cell)} bytes>"
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ")
    if isinstance(cell, list | dict):
        return json.dumps(cell, default=_as_json, ensure_ascii=False)
    return str(cell)


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if hasattr(value, "item"):
        return value.item()
    return str(value)
