"""Plots as SVG text: bars and log-log lines, readable on light and dark ground. No dependency.

Colours are classes, set for both grounds in the picture's own style sheet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.summary import number

WIDTH = 760
LETTER = 7  # pixels of a letter of a label, more than most have
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
LIGHT = ("#1f6feb", "#bc4c00", "#1a7f37", "#8250df", "#9a6700")
DARK = ("#6cb6ff", "#f69d50", "#6bc46d", "#b083f0", "#daaa3f")


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    low: float
    high: float
    is_ours: bool


Line = tuple[str, Sequence[tuple[float, float]]]


def bars(title: str, unit: str, rows: Sequence[Bar], *, note: str = "") -> str:
    """Horizontal bars of medians, with a whisker from the least to the greatest repetition."""
    left, right, top, step = 20 + max([90, *(LETTER * len(row.label) for row in rows)]), 120, 64, 30
    height = top + step * len(rows) + 46
    room = WIDTH - left - right
    most = max((row.high for row in rows), default=1) or 1
    parts = [_text(20, 28, title, "title"), _text(20, 48, note, "small") if note else ""]
    for at, (kind, label) in enumerate((("c0", "Perdure"), ("peer", "peers"))):
        place = WIDTH - right - 60 + at * 84
        parts.append(f'<rect class="{kind}" x="{place}" y="38" width="12" height="12" rx="2"/>')
        parts.append(_text(place + 18, 48, label, "small"))
    for tick in _ticks(most):
        x = left + tick / most * room
        bottom = height - 38
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top - 6}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(_text(x, bottom + 14, number(tick), "small", "middle"))
    for at, row in enumerate(rows):
        y = top + at * step
        length = max(1.0, row.value / most * room)
        low, high = left + row.low / most * room, left + row.high / most * room
        kind = "c0" if row.is_ours else "peer"
        parts.append(_text(left - 10, y + 14, row.label, "label", "end"))
        parts.append(f'<rect class="{kind}" x="{left}" y="{y}" width="{length:.1f}" height="18" rx="2"/>')
        parts.append(
            f'<path class="whisker" d="M{low:.1f} {y + 9}H{high:.1f}M{low:.1f} {y + 5}v8M{high:.1f} {y + 5}v8"/>'
        )
        parts.append(_text(max(left + length, high) + 8, y + 14, number(row.value), "label"))
    parts.append(_text(left + room / 2, height - 8, unit, "small", "middle"))
    return _picture(height, title, parts)


def lines(title: str, axis: str, unit: str, series: Sequence[Line]) -> str:
    """Both scales logarithmic: a flat line costs the same everywhere, a slope of one is linear."""
    left, right, top, bottom, height = 78, 30, 64, 62, 400
    points = [point for _, line in series for point in line]
    if not points:
        return _picture(120, title, [_text(20, 28, title, "title"), _text(20, 60, "not measured", "label")])
    x0, x1 = _decades([x for x, _ in points])
    y0, y1 = _decades([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x0) / (x1 - x0) * (WIDTH - left - right)
        up = (math.log10(y) - y0) / (y1 - y0) * (height - top - bottom)
        return left + across, height - bottom - up

    parts = [_text(20, 28, title, "title")]
    for power in range(x0, x1 + 1):
        x, _ = place(10.0**power, 10.0**y0)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{height - bottom}"/>')
        parts.append(_text(x, height - bottom + 18, f"{10**power:,}", "small", "middle"))
    for power in range(y0, y1 + 1):
        _, y = place(10.0**x0, 10.0**power)
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{WIDTH - right}" y2="{y:.1f}"/>')
        parts.append(_text(left - 8, y + 4, number(10.0**power), "small", "end"))
    parts.append(_text((left + WIDTH - right) / 2, height - 16, axis, "small", "middle"))
    middle = (top + height - bottom) / 2
    parts.append(_text(18, middle, unit, "small", "middle", f' transform="rotate(-90 18 {middle})"'))
    for at, (label, line) in enumerate(series):
        colour = at % len(LIGHT)
        placed = [place(x, y) for x, y in line]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline class="s{colour}" points="{drawn}"/>')
        parts += [_mark(at, colour, x, y) for x, y in placed]
        x = left + at * 190
        parts.append(_mark(at, colour, x + 6, 47))
        parts.append(_text(x + 16, 51, label, "small"))
    return _picture(height, title, parts)


def _mark(at: int, colour: int, x: float, y: float) -> str:
    """A shape of its own for each line: colour is not the only sign."""
    if at % 3 == 0:
        return f'<circle class="c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    if at % 3 == 1:
        return f'<rect class="c{colour}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    return f'<path class="c{colour}" d="M{x:.1f} {y - 5:.1f}l5 9h-10z"/>'


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) - 1e-9)
    return low, max(high, low + 1)


def _ticks(most: float) -> list[float]:
    """Round numbers, four or five of them."""
    step = 10.0 ** math.floor(math.log10(most / 2))
    while most / step > 5:
        step *= 2 if str(step).strip("0.").startswith(("1", "5")) else 2.5
    return [step * at for at in range(int(most / step) + 1)]


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start", more: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _picture(height: int, title: str, parts: Sequence[str]) -> str:
    body = "\n".join(part for part in parts if part)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">\n<style>\n{_style()}</style>\n'
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>\n{body}\n</svg>\n'
    )


def _style() -> str:
    def ground(paper: str, ink: str, soft: str, grid: str, peer: str, colours: Sequence[str]) -> str:
        rules = [
            f".ground {{ fill: {paper}; }}",
            f"text {{ font-family: {FONT}; fill: {ink}; }}",
            f".small {{ fill: {soft}; }}",
            f".grid {{ stroke: {grid}; }}",
            f".peer {{ fill: {peer}; }}",
            f".whisker {{ stroke: {ink}; }}",
        ]
        for at, colour in enumerate(colours):
            rules += [f".c{at} {{ fill: {colour}; }}", f".s{at} {{ stroke: {colour}; }}"]
        return "\n".join(rules)

    shapes = (
        ".title { font-size: 16px; font-weight: 600; }\n.label { font-size: 13px; }\n.small { font-size: 12px; }\n"
        "polyline { fill: none; stroke-width: 2; }\n.whisker { fill: none; stroke-width: 1; }\n"
    )
    light = ground("#ffffff", "#1f2328", "#59636e", "#d8dee4", "#8c959f", LIGHT)
    dark = ground("#0d1117", "#e6edf3", "#9198a1", "#30363d", "#6e7681", DARK)
    return f"{shapes}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
