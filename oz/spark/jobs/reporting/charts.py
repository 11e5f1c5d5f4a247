"""Charts as inline SVG, drawn for a phone's width; each with a title and a text alternative."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

WIDTH = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 6, 8, 18


def columns(
    title: str,
    values: Sequence[float],
    *,
    top: str,
    middle: str,
    labels: Sequence[tuple[int, str]],
    alternative: str,
    kind: str = "",
) -> str:
    """Draw one column for each value.

    Args:
        title: what the chart is of.
        values: at least one; none negative.
        top: how to write the greatest of them.
        middle: how to write half of it.
        labels: which columns to label, and how.
        alternative: what the chart shows, in words.
        kind: a class, for the colour.
    """
    height = 150
    bottom, greatest = height - _BOTTOM, max(values) or 1
    room = WIDTH - _LEFT - _RIGHT
    step = room / len(values)
    gap = 1 if step >= 4 else 0.4 if step >= 2 else 0
    bars = "".join(
        f'<rect class="bar {kind}" x="{_LEFT + at * step:.1f}" y="{bottom - size:.1f}" '
        f'width="{step - gap:.1f}" height="{size:.1f}"/>'
        for at, value in enumerate(values)
        if (size := value / greatest * (bottom - _TOP))
    )
    lines = _line(_TOP, top) + _line((_TOP + bottom) / 2, middle) + _line(bottom, "0")
    return _svg(title, alternative, height, lines + bars + _labels(labels, step, height, len(values)))


def _line(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{html.escape(label)}</text>'
    )


def _labels(labels: Sequence[tuple[int, str]], step: float, height: int, places: int) -> str:
    written = []
    for at, text in labels:
        share = at / max(places - 1, 1)
        anchor = "start" if share < 0.2 else "end" if share > 0.8 else "middle"
        x = _LEFT + (at + {"start": 0, "middle": 0.5, "end": 1}[anchor]) * step
        written.append(
            f'<text x="{x:.1f}" y="{height - 5}" text-anchor="{anchor}">{html.escape(text)}</text>'
        )
    return "".join(written)


def grid(
    title: str,
    rows: Sequence[str],
    places: int,
    cells: Mapping[tuple[int, int], float],
    *,
    labels: Sequence[tuple[int, str]],
    alternative: str,
) -> str:
    """Draw a row of cells for each name, the darker the more.

    Args:
        title: what the chart is of.
        rows: short names.
        places: how many cells a row has room for.
        cells: values above 0 by row and place.
        labels: which places to label, and how.
        alternative: what the chart shows, in words.
    """
    tall = 16
    height = _TOP + tall * len(rows) + _BOTTOM
    step = (WIDTH - _LEFT - _RIGHT) / places
    greatest = max(cells.values(), default=1)
    names = "".join(
        f'<text x="{_LEFT - 4}" y="{_TOP + tall * at + 11}" text-anchor="end">{html.escape(name)}</text>'
        f'<rect class="empty" x="{_LEFT}" y="{_TOP + tall * at}" width="{step * places:.1f}" '
        f'height="{tall - 2}"/>'
        for at, name in enumerate(rows)
    )
    drawn = "".join(
        f'<rect class="bar loss" x="{_LEFT + place * step:.1f}" y="{_TOP + tall * row}" '
        f'width="{max(step - 0.3, 1.5):.1f}" height="{tall - 2}" '
        f'opacity="{0.3 + 0.7 * value / greatest:.2f}"/>'
        for (row, place), value in cells.items()
    )
    return _svg(title, alternative, height, names + drawn + _labels(labels, step, height, places))


def _svg(title: str, alternative: str, height: int, content: str) -> str:
    facts = html.escape(f"{title}. {alternative}")
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" aria-label="{facts}">'
        f"<title>{html.escape(title)}</title><desc>{html.escape(alternative)}</desc>{content}</svg>"
    )
