"""The standings as bars: an SVG that fits a light page and a dark one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.standings import Line, Standings

STYLE = """
  text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 }
  .head { font-size: 14px; font-weight: 600 }
  .panel { font-size: 12px; font-weight: 600 }
  .quiet { fill: #59636e }
  .end { text-anchor: end }
  .page { fill: #ffffff }
  .axis { stroke: #d1d9e0 }
  .ours { fill: #0969da }
  .peer { fill: #afb8c1 }
  .raw { fill: #afb8c1; fill-opacity: .25; stroke: #818b98; stroke-dasharray: 3 2 }
  .mine { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .quiet { fill: #9198a1 }
    .page { fill: #0d1117 }
    .axis { stroke: #3d444d }
    .ours { fill: #4493f8 }
    .peer { fill: #59636e }
    .raw { fill: #59636e; stroke: #9198a1 }
  }
"""
MARGIN = 24
TOP = 112
COLUMN = 500
NAMES = 192
"""The width of the names beside the bars."""
LONGEST = 190
BAR, GAP = 14, 6
HEAD, FOOT = 26, 18
"""Above and below the bars of a panel."""


def draw(standings: Sequence[Standings]) -> str:
    """One column for each of them, one panel for each discipline, one bar for each queue."""
    longest = max(standings, key=lambda one: len(one.lines))
    names = {line.name: _marked(line) for line in longest.lines}
    panels = len(standings[0].columns)
    heights = [_height(standings, panel) for panel in range(panels)]
    width = MARGIN + COLUMN * len(standings)
    height = TOP + sum(heights) + MARGIN
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    drawn: list[str] = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        '<title id="title">Messages per second of this queue, of raw SQLite and of others</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
        *_legend(),
    ]
    for number, one in enumerate(standings):
        left, top = MARGIN + COLUMN * number, TOP
        drawn.append(_text(left, top - 14, one.condition, "head"))
        for panel, tall in enumerate(heights):
            drawn += _panel(one, panel, names, left, top)
            top += tall
    return "\n".join([*drawn, "</svg>", ""])


def _legend() -> Iterator[str]:
    yield _text(MARGIN, 36, "Messages per second, one by one (longer is better)", "title")
    left = MARGIN
    for kind, words in (
        ("ours", "this queue"),
        ("raw", "the same in raw SQLite statements"),
        ("peer", "other queues"),
    ):
        yield f'<rect class="{kind}" x="{left}" y="52" width="{BAR}" height="{BAR}" rx="2"/>'
        yield _text(left + BAR + 6, 63, words, "quiet")
        left += BAR + 30 + round(6.2 * len(words))
    words = "† no ack: what a dying consumer has got is lost"
    yield _text(left, 63, words, "quiet")


def _panel(one: Standings, panel: int, names: dict[str, str], left: int, top: int) -> Iterator[str]:
    yield _text(left, top + 14, one.columns[panel], "panel")
    lines = {line.name: line for line in one.lines}
    cells = {line.name: line.cells[panel] for line in one.lines}
    scale = LONGEST * min(cell.seconds for cell in cells.values() if cell)
    bars = left + NAMES
    top += HEAD
    first = top
    for name, marked in names.items():
        if name in cells and cells[name] is None:
            continue
        middle = top + BAR - 3
        line, cell = lines.get(name), cells.get(name)
        if line is None or cell is None:
            yield _text(bars - 8, middle, marked, "quiet end")
            yield _text(bars + 6, middle, f"has no {one.condition}", "quiet")
        else:
            long = max(scale / cell.seconds, 1.0)
            mine = " mine" if line.kind == "ours" else ""
            yield _text(bars - 8, middle, marked, f"end{mine}")
            yield (
                f'<rect class="{line.kind}" x="{bars}" y="{top}" width="{long:.1f}" '
                f'height="{BAR}" rx="2"/>'
            )
            yield _text(bars + long + 6, middle, f"{1 / cell.seconds:,.0f}/s", mine.strip())
        top += BAR + GAP
    yield f'<path class="axis" d="M{bars - 0.5} {first - 3}V{top - GAP + 3}"/>'


def _height(standings: Sequence[Standings], panel: int) -> int:
    names = {line.name for one in standings for line in one.lines}
    absent = {line.name for one in standings for line in one.lines if line.cells[panel] is None}
    return HEAD + (BAR + GAP) * len(names - absent) + FOOT


def _marked(line: Line) -> str:
    return f"{line.name} †" if "ack" in line.lacks.split(", ") else line.name


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'
