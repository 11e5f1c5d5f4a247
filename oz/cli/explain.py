"""`oz explain`: what a pattern becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import oz
from oz.cli.against import show_against
from oz.cli.options import Number, dialect_option, parse_all
from oz.cli.output import console, is_terminal, json_field, printable, write_json, write_line
from oz.subjects.advice import advice
from oz.transport import endpoints

_HELP = """Show what each PATTERN becomes: prefixes for ZeroMQ, and a regex for what they let through.

A publisher sends what begins with one of the prefixes; the regex decides, on arrival, what is delivered.
Warnings name what is legal but unwise: an empty prefix, more than 16 tokens, characters that are not ASCII.
To a pipe it writes "key: value" lines, with a blank line between patterns.

With --against it measures instead: how many messages the prefixes let through, how many of those the
pattern matches, and how many cross the wire in vain. The subjects come from a file, one a line, from stdin
(-), or from a running publisher (an endpoint), which is listened to for --seconds.

\b
Examples:
  oz explain 'time.*.east'
  oz explain 'rv:Foo.*' 'redis:sensor:[ab]?:*' 'regex:^order\\.(new|fill)\\..*'
  oz explain --json 'md.>' | jq '.[].prefixes'
  oz explain 'time.*.east' 'time.us.*' --against subjects.txt
  oz explain 'md.*.EURUSD' --against tcp://127.0.0.1:5750 --seconds 10
"""


def _checked_source(_ctx: click.Context, _option: click.Parameter, source: str | None) -> str | None:
    """Refuse early what is neither a file nor an endpoint."""
    if source is None or source == "-":
        return source
    if "://" not in source and not Path(source).is_file():
        raise click.BadParameter(f"{source!r} is neither a file nor an endpoint such as tcp://127.0.0.1:5750")
    if "://" in source:
        try:
            endpoints.check(source, own_context=True)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return source


@click.command(help=_HELP, short_help="Show the prefixes and the regex that a pattern becomes.")
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@dialect_option("patterns that name none")
@click.option(
    "--against", metavar="FILE|ENDPOINT", callback=_checked_source, help="Measure on these subjects instead."
)
@click.option(
    "--seconds",
    type=Number(above=True),
    default=5.0,
    show_default=True,
    help="The time to listen to an endpoint.",
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON list of objects.")
def explain(
    patterns: tuple[str, ...], dialect: str, against: str | None, seconds: float, as_json: bool
) -> None:
    """Show patterns; the text of the help is `_HELP`."""
    compiled = parse_all(patterns, dialect, warn=against is not None)  # otherwise they are shown below
    if against is not None:
        show_against(compiled, against, seconds, as_json=as_json)
    elif as_json:
        write_json([_as_data(pattern) for pattern in compiled])
    elif is_terminal():
        _show_panels(compiled)
    else:
        write_line("\n\n".join(_as_lines(pattern) for pattern in compiled))


def _as_data(pattern: oz.Pattern) -> dict[str, Any]:
    return {
        **json_field("pattern", pattern.text),
        "dialect": pattern.dialect,
        "regex": _regex_text(pattern),
        "prefixes": [printable(prefix) for prefix in pattern.prefixes],
        "literal": pattern.is_literal,
        "warnings": advice(pattern),
    }


def _as_pairs(pattern: oz.Pattern) -> list[tuple[str, str]]:
    pairs = [("pattern", printable(pattern.text)), ("dialect", pattern.dialect)]
    pairs.append(("regex", printable(_regex_text(pattern))))
    pairs += [("prefix", printable(prefix)) for prefix in pattern.prefixes]
    pairs.append(("literal", "yes" if pattern.is_literal else "no"))
    pairs += [("warning", warning) for warning in advice(pattern)]
    return pairs


def _as_lines(pattern: oz.Pattern) -> str:
    return "\n".join(f"{key}: {value}".rstrip() for key, value in _as_pairs(pattern))


def _show_panels(patterns: list[oz.Pattern]) -> None:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    for pattern in patterns:
        grid = Table.grid(padding=(0, 2))
        for key, value in _as_pairs(pattern)[1:]:
            style = "yellow" if key == "warning" else ""
            grid.add_row(Text(key, "dim"), Text(value or "(empty)", style, overflow="fold"))
        title = Text(printable(pattern.text), "bold")
        console().print(Panel(grid, title=title, title_align="left", expand=False))


def _regex_text(pattern: oz.Pattern) -> str:
    text = pattern.regex.pattern
    return text if isinstance(text, str) else text.decode("latin-1")
