"""`oz match`: print the subjects that a pattern matches, as grep does for lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click

import oz
from oz.cli.exits import FAILED
from oz.cli.options import dialect_option, parse_all
from oz.cli.output import json_field, json_option, write_line
from oz.escaping import json_text

_HELP = """Print each SUBJECT that PATTERN matches.

Without a SUBJECT, or with -, the command reads subjects from stdin, one in each line. As with grep, the exit code
is 0 if a subject matched, 1 if no subject matched, and 2 if the pattern is wrong.

\b
Examples:
  oz match 'time.*.east' time.new.east time.new.west
  oz match 'redis:sensor:[ab]?:*' < subjects.txt
  oz match 'rv:_INBOX.>' "$subject" > /dev/null && echo "an inbox"
"""


@click.command(help=_HELP)
@click.argument("pattern")
@click.argument("subjects", metavar="[SUBJECT]...", nargs=-1)
@dialect_option("the pattern, if it has no dialect name")
@json_option("Write one JSON object a line.")
@click.pass_context
def match(ctx: click.Context, pattern: str, subjects: tuple[str, ...], dialect: str, as_json: bool) -> None:
    """Print matching subjects; `_HELP` is the text of `--help`."""
    [compiled] = parse_all([pattern], dialect)
    matched = False
    for subject in _given(subjects):
        if _matches(compiled, subject):
            matched = True
            write_line(json_text(json_field("subject", subject)) if as_json else subject)
    if not matched:
        ctx.exit(FAILED)


def _given(subjects: Iterable[str]) -> Iterator[bytes]:
    for subject in subjects or ("-",):
        if subject == "-":
            yield from (line.removesuffix(b"\n") for line in sys.stdin.buffer)
        else:
            yield subject.encode(errors="surrogateescape")


def _matches(pattern: oz.Pattern, subject: bytes) -> bool:
    try:
        return pattern.matches(subject)
    except oz.SubjectError:  # A pattern of a text dialect does not match a subject that is not UTF-8.
        return False
