"""The report as one HTML file that needs nothing beside it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path

import numpy as np

from localqueue.errors import InvalidArgument
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.location import named_after
from localqueue.spark.pipeline.rates import FAILURE_RATE
from localqueue.spark.pipeline.report import units
from localqueue.spark.pipeline.report.charts import Chart, spark_line
from localqueue.spark.pipeline.report.figures import Figures, figures_of
from localqueue.spark.pipeline.report.queue_charts import Tile, charts_of, tiles_of
from localqueue.spark.pipeline.report.series import Series
from localqueue.spark.pipeline.report.slo import Slo
from localqueue.spark.pipeline.report.table_facts import TableFacts
from localqueue.spark.pipeline.report.top_errors import TopError
from localqueue.spark.pipeline.report.window import Window
from localqueue.stores.masking import masked

CHARTED = 24
"""So many queues, the busiest, have charts of their own; the table has a row for more."""
LISTED = 500

_HERE = Path(__file__).parent


def write_report(
    lake: Lake | str | Path,
    path: str | Path,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    slo: Slo | None = None,
) -> Figures:
    """Write the page about [since, until), by default about all that the lake has.

    The file is there as a whole or not at all. A lake without any tables gives a page as well,
    which says how to fill it. Answers with the figures that the page shows.
    """
    check_folder_of(path)
    lake = lake if isinstance(lake, Lake) else Lake(lake)
    figures = figures_of(lake, since=since, until=until, slo=slo)
    _replace(Path(path), page(figures))
    return figures


def check_folder_of(path: str | Path) -> None:
    """InvalidArgument when the page cannot be written there."""
    if not Path(path).absolute().parent.is_dir():
        raise InvalidArgument(f"there is no folder {Path(path).parent} for the report")
    if Path(path).is_dir():
        raise InvalidArgument(f"{path} is a folder; name a file for the report")


def page(figures: Figures) -> str:
    """The text of the page."""
    window = figures.window
    body = _empty(figures) if window is None else _full(figures, window)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Nothing is ever fetched, whatever a queue or an error is called.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>Queues: {escape(_shown_lake(figures))}</title>\n"
        f"<style>\n{_part('page.css')}</style>\n</head>\n<body>\n{_header(figures)}\n"
        f"<main>\n{body}\n</main>\n{_footer(figures)}\n"
        f"<script>\n{_part('page.js')}</script>\n</body>\n</html>\n"
    )


# --- the parts of the page ------------------------------------------------------------------------
def _header(figures: Figures) -> str:
    window = figures.window
    about = "no events yet"
    if window is not None:
        about = (
            f"{units.moment(window.start)} – {units.moment(window.end)} UTC,"
            f" {_queues(len(figures.queues))}, a point every {units.duration(window.width)}"
        )
    return (
        f"<header><div><h1>Queues</h1><p>{escape(about)}</p></div>"
        '<button id="theme" type="button" hidden aria-label="light or dark">◐</button></header>'
    )


def _full(figures: Figures, window: Window) -> str:
    assert figures.overall is not None
    charted = [figures.overall, *(figures.queues[:CHARTED] if len(figures.queues) > 1 else [])]
    parts = [_warnings(figures), _picker(charted)]
    parts += [_queue(n, one, window, figures) for n, one in enumerate(charted)]
    parts += [_table_of_queues(figures), _table_of_errors(figures.errors), _tables(figures.tables)]
    return "\n".join(part for part in parts if part)


def _warnings(figures: Figures) -> str:
    found = []
    if figures.gaps:
        found.append(
            f"{_number(figures.gaps, 'part', 'parts')} of a journal had been trimmed before the"
            " pipeline came to it; the table <code>gaps</code> says which. What is shown here is"
            " less than what happened."
        )
    if figures.quarantined:
        found.append(
            f"{_number(figures.quarantined, 'row', 'rows')} of the journal did not decode and"
            " can be looked at in the table <code>quarantine</code>."
        )
    return "".join(f'<p class="warning">{sentence}</p>' for sentence in found)


def _picker(charted: Sequence[Series]) -> str:
    if len(charted) < 2:
        return ""
    links = "".join(f'<a href="#q{n}">{escape(one.name)}</a>' for n, one in enumerate(charted))
    return f'<nav aria-label="queues">{links}</nav>'


def _queue(number: int, one: Series, window: Window, figures: Figures) -> str:
    charts = charts_of(one, figures.slo)
    tiles = "".join(_tile(tile) for tile in tiles_of(one, figures.slo))
    drawn = "".join(chart.html(window) for chart in charts)
    return (
        f'<section class="queue" id="q{number}"><h2>{escape(one.name)}</h2>'
        f'<div class="tiles">{tiles}</div><div class="charts">{drawn}</div>'
        f'<script type="application/json">{_values(charts, window)}</script></section>'
    )


def _tile(tile: Tile) -> str:
    return (
        f'<div class="tile {tile.mood}"><span>{escape(tile.name)}</span>'
        f"<b>{escape(tile.value)}</b><small>{_unbroken(escape(tile.beside))}</small></div>"
    )


def _values(charts: Iterable[Chart], window: Window) -> str:
    """What the page's script shows at the pointer: the numbers behind the curves."""
    curves = [
        [
            [curve.name or chart.title.lower(), curve.tone, _rounded(curve.values)]
            for curve in chart.curves
        ]
        for chart in charts
        if not chart.is_empty
    ]
    data = {"start": window.start, "width": window.width, "charts": curves}
    # A name like </script> must not end the element.
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _rounded(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in values]


def _table_of_queues(figures: Figures) -> str:
    if len(figures.queues) < 2:
        return ""
    rows = "".join(
        _row_of_queue(one, n + 1 if n < CHARTED else None)
        for n, one in enumerate(figures.queues[:LISTED])
    )
    left_out = len(figures.queues) - LISTED
    more = f'<p class="more">and {_queues(left_out)} more</p>' if left_out > 0 else ""
    return (
        '<section class="list"><h2>Queues</h2><div class="scroll"><table><thead><tr>'
        "<th>queue</th><th>finished over time</th><th>put</th><th>finished</th><th>wait p95</th>"
        "<th>run p95</th><th>failed</th><th>dead letters</th><th>backlog</th><th>in time</th>"
        f"</tr></thead><tbody>{rows}</tbody></table></div>{more}</section>"
    )


def _row_of_queue(one: Series, number: int | None) -> str:
    name = escape(one.name)
    link = f'<a href="#q{number}">{name}</a>' if number is not None else name
    cells = [
        units.count(one.sum("enqueued")),
        units.count(one.sum("acked")),
        units.duration(one.wait.quantile(0.95)),
        units.duration(one.run.quantile(0.95)),
        units.percent(one.rate(FAILURE_RATE)),
        units.count(one.sum("died")),
        units.count(float(one.backlog[-1])),
        units.percent(one.in_time),
    ]
    numbers = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    curve = spark_line(one.counts["acked"], "green")
    return f"<tr><th>{link}</th><td>{curve}</td>{numbers}</tr>"


def _table_of_errors(errors: Sequence[TopError]) -> str:
    if not errors:
        return '<section class="list"><h2>Errors</h2><p class="more">none</p></section>'
    total = sum(error.count for error in errors)
    rows = "".join(
        f"<tr><th><b>{escape(error.error_type or 'no type')}</b>"
        f"<div>{escape(error.error_text)}</div></th><td>{escape(error.queue)}</td>"
        f'<td><span class="bar" style="--share:{100 * error.count / errors[0].count:.1f}%"></span>'
        f"{units.count(error.count)}</td><td>{units.percent(error.count / total)}</td>"
        f"<td>{units.moment(error.first_at)}</td><td>{units.moment(error.last_at)}</td>"
        f"<td><code>{escape(error.message_id)}</code></td></tr>"
        for error in errors
    )
    return (
        '<section class="list errors"><h2>Errors</h2><div class="scroll"><table><thead><tr>'
        "<th>error</th><th>queue</th><th>times</th><th>share</th><th>first</th><th>last</th>"
        f"<th>a message</th></tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _tables(tables: Sequence[TableFacts]) -> str:
    rows = "".join(
        f"<tr><th>{escape(table.name)}</th><td>{units.count(table.rows)}</td>"
        f"<td>{units.size(table.bytes)}</td><td>{table.files}</td><td>{table.version}</td>"
        f"<td>{units.moment(table.changed_at)}</td></tr>"
        for table in tables
    )
    return (
        '<section class="list"><h2>Tables</h2><div class="scroll"><table><thead><tr>'
        "<th>table</th><th>rows</th><th>size</th><th>files</th><th>version</th><th>changed</th>"
        f"</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _empty(figures: Figures) -> str:
    tables = _tables(figures.tables) if figures.tables else ""
    what = (
        "The tables of this lake have no events of that time."
        if figures.tables
        else "There are no tables in this lake yet."
    )
    return (
        f'{_warnings(figures)}<section class="empty"><h2>Nothing to show yet</h2><p>{what}'
        " Bring the journal of a store to it, then write the report again:</p>"
        f"<pre>localqueue pipeline run sqlite:////path/to/queue.sqlite3"
        f" {escape(_shown_lake(figures))}\n"
        f"localqueue pipeline report {escape(_shown_lake(figures))}</pre></section>{tables}"
    )


def _footer(figures: Figures) -> str:
    return (
        f"<footer>Made {units.moment(figures.made_at)} UTC from"
        f" <code>{escape(_shown_lake(figures))}</code>. All times are UTC.</footer>"
    )


# --- small things ---------------------------------------------------------------------------------
def _unbroken(text: str) -> str:
    """With numbers that stay on one line with their units."""
    return re.sub(r"(?<=\d) (?=%|[a-zµ]+\b)", "\u00a0", text)


def _shown_lake(figures: Figures) -> str:
    return masked(figures.lake)


def _queues(n: int) -> str:
    return _number(n, "queue", "queues")


def _number(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _part(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _replace(path: Path, text: str) -> None:
    """Write beside it first: whoever looks at the old page never sees half of the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise named_after(error, f"writing {path}") from error
