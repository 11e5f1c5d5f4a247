"""Parts of the page: cards, charts, lists with bars, trees and tables. What comes in is HTML already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def section(title: str, body: str, *, note: str = "", full_width: bool = False) -> str:
    """Put something under a heading."""
    said = f'<p class="soft">{note}</p>' if note else ""
    return f"<section{' class=wide' if full_width else ''}><h2>{title}</h2>{said}{body}</section>"


def figure(facts: str, drawn: str) -> str:
    """Put a chart into the page.

    Args:
        facts: what the chart shows, in words.
        drawn: the chart.
    """
    return f'<figure role="img" aria-label="{facts}">{drawn}</figure>'


def details(summary: str, body: str) -> str:
    """Put something away until it is asked for."""
    return f'<details><summary>{summary}</summary><div class="scroll">{body}</div></details>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay rows out; the first cell of each is what the row is of."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bars(rows: Iterable[tuple[str, str, float]], *, red: bool = False) -> str:
    """List names with their values, and a bar below each.

    Args:
        rows: name, value as it is written, and its share of the greatest, from 0 to 1.
        red: for what nobody wants.
    """
    items = "".join(f"<li>{bar(name, value, share, red=red)}</li>" for name, value, share in rows)
    return f'<ul class="bars">{items}</ul>'


def bar(name: str, value: str, share: float, *, red: bool = False, tag: str = "div") -> str:
    """Write one name and value with a bar."""
    return (
        f'<{tag} class="row{" red" if red else ""}"><b>{name}</b><span>{value}</span>'
        f'<i aria-hidden="true" style="--share:{share:.1%}"></i></{tag}>'
    )


def definitions(pairs: Iterable[tuple[str, str, str]]) -> str:
    """List names with values, and something small below each."""
    return f"<dl>{''.join(_definition(*pair) for pair in pairs)}</dl>"


def _definition(name: str, value: str, small: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}{f'<small>{small}</small>' if small else ''}</dd></div>"
