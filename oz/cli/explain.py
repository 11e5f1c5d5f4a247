"""`oz explain`: prefixes and regex of a pattern, and its matches among subjects of a file or a publisher."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import oz
from oz.cli.options import Number, dialect_option, parse_all, read_security, security_path_option
from oz.cli.output import (
    console,
    is_terminal,
    json_field,
    json_option,
    plain_table,
    print_status,
    print_stderr,
    quiet_option,
    write_json,
    write_line,
)
from oz.escaping import printable
from oz.subjects.advice import advice
from oz.subjects.explanation import is_delivered, regex_text

_HELP = """Show the prefixes and the regex of each PATTERN.

With filtering by prefix, a publisher sends the messages that begin with one of the prefixes, and the subscriber
delivers the messages that the regex matches. Warnings name patterns that are legal but have a disadvantage: an empty
prefix, more than 16 tokens, or characters that are not ASCII. Into a pipe the command writes "key: value" lines, with a
blank line between patterns.

With --against it counts the messages that pass the prefixes, the messages that match the pattern, and the difference:
messages that cross the wire and are dropped ("in vain"). The subjects come from a file with one subject in each line,
from stdin (-), or from a running publisher (an endpoint) during --seconds. If the publisher does not grant all subjects
to the key of --security, only messages that match are counted. If it denies a PATTERN, the command fails and prints the
rule.

\b
Examples:
  oz explain 'time.*.east'
  oz explain 'rv:Foo.*' 'redis:sensor:[ab]?:*' 'regex:^order\\.(new|fill)\\..*'
  oz explain --json 'md.>' | jq '.[].prefixes'
  oz explain 'time.*.east' 'time.us.*' --against subjects.txt
  oz explain 'md.*.EURUSD' --against tcp://127.0.0.1:5750 --seconds 10
"""


def _check_source(_ctx: click.Context, _option: click.Parameter, source: str | None) -> str | None:
    if source is None or source == "-":
        return source
    # The path may name a pipe, such as the path that a shell creates for <(…).
    if "://" not in source and (Path(source).is_dir() or not Path(source).exists()):
        raise click.BadParameter(f"{source!r} is neither a file nor an endpoint such as tcp://127.0.0.1:5750")
    return source


@click.command(help=_HELP, short_help="Show the prefixes and the regex of a pattern.")
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@dialect_option("patterns without a dialect name")
@click.option(
    "--against",
    metavar="FILE|ENDPOINT",
    callback=_check_source,
    help="Count the messages with these subjects that match.",
)
@click.option(
    "--seconds",
    type=Number(above=True),
    default=5.0,
    show_default=True,
    help="The time to listen to an endpoint.",
)
@security_path_option
@json_option("Write a JSON list of objects.")
@quiet_option
def explain(
    patterns: tuple[str, ...],
    dialect: str,
    against: str | None,
    seconds: float,
    security: str | None,
    as_json: bool,
) -> None:
    """Explain patterns; `_HELP` is the text of `--help`."""
    # Without --against, the warnings are a part of the output.
    compiled = parse_all(patterns, dialect, warn=against is not None)
    if against is not None:
        is_endpoint = "://" in against
        sample = _sample(compiled, against, seconds, security) if is_endpoint else _subjects_of(against)
        _show_against(compiled, against, Counter(sample), as_json=as_json)
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
        "regex": regex_text(pattern),
        "prefixes": [printable(prefix) for prefix in pattern.prefixes],
        "literal": pattern.is_literal,
        "warnings": advice(pattern),
    }


def _as_pairs(pattern: oz.Pattern) -> list[tuple[str, str]]:
    pairs = [("pattern", printable(pattern.text)), ("dialect", pattern.dialect)]
    pairs.append(("regex", printable(regex_text(pattern))))
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


_COUNTS = ("seen", "crossed", "matched", "in_vain")


def _show_against(
    patterns: Sequence[oz.Pattern], source: str, subjects: Counter[bytes], *, as_json: bool
) -> None:
    if not subjects:
        raise click.ClickException(
            f"no subjects from {source}, so that there is nothing to count; give --seconds or another source"
        )
    counts = [_count(pattern, subjects) for pattern in patterns]
    if as_json:
        write_json(
            [
                {
                    **json_field("pattern", pattern.text),
                    "dialect": pattern.dialect,
                    "prefixes": [printable(prefix) for prefix in pattern.prefixes],
                    **found,
                    "precision": round(found["matched"] / found["crossed"], 6) if found["crossed"] else 1.0,
                }
                for pattern, found in zip(patterns, counts, strict=True)
            ]
        )
        return
    rows = [("pattern", "dialect", *(name.replace("_", " ") for name in _COUNTS))]
    for pattern, found in zip(patterns, counts, strict=True):
        rows.append((printable(pattern.text), pattern.dialect, *(str(found[name]) for name in _COUNTS)))
    write_line(plain_table(rows))


def _count(pattern: oz.Pattern, subjects: Counter[bytes]) -> dict[str, int]:
    crossed = {subject: count for subject, count in subjects.items() if subject.startswith(pattern.prefixes)}
    matched = sum(count for subject, count in crossed.items() if is_delivered(pattern, subject))
    on_wire = sum(crossed.values())
    return dict(zip(_COUNTS, (subjects.total(), on_wire, matched, on_wire - matched), strict=True))


def _subjects_of(source: str) -> Iterator[bytes]:
    data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    return (line.rstrip(b"\r") for line in data.split(b"\n") if line.strip())


def _sample(
    patterns: Sequence[oz.Pattern], endpoint: str, seconds: float, security: str | None
) -> Iterator[bytes]:
    """Yield the subjects that a publisher sends in `seconds`.

    If the publisher denies some subjects to this key, yield only the subjects that match.
    """
    with oz.Subscriber(endpoint, security=read_security(security)) as sub:
        every = sub.subscribe(b"")
        ctx = click.get_current_context()
        print_status(ctx, f"listening to {endpoint} for {seconds:g} s")
        silence: oz.Timeout | None = None
        try:
            sub.wait_ready(timeout=seconds)
        except oz.PermissionDenied:
            every.unsubscribe()
            sub.subscribe(patterns)
            sub.wait_ready(timeout=seconds)
            print_stderr(ctx, "the publisher denies some subjects to this key: only matches are counted")
        except oz.Timeout as error:
            silence = error
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                yield sub.receive(timeout=left).frames[0]
            except oz.Timeout:
                break
        if silence is not None and any(publisher.mode == "connecting" for publisher in sub.publishers):
            raise silence
