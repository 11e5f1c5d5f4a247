"""`oz translate`: write a pattern in another dialect, and report the difference in meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import oz
from oz.cli.exits import FAILED
from oz.cli.options import dialect_option, parse_all
from oz.cli.output import json_field, json_option, write_json, write_line
from oz.escaping import printable

if TYPE_CHECKING:  # Only this command needs the comparison of patterns.
    from oz.subjects.translate import Translation

_HELP = """Write PATTERN in another dialect, and show whether it matches the same subjects.

The relation is exact, wider (the translation matches more subjects), narrower (it matches fewer subjects), overlapping
(it matches other subjects, and misses some) or undecided. If the relation is not exact, the command prints a subject
that shows the difference.

mqtt splits subjects at /, and most other dialects split them at a dot. Nevertheless the translation is for the same
subjects as PATTERN. With --exchange it is for subjects in which / and the dot are exchanged.

The exit code is 0 if the translation is exact, 1 if it is not exact, and 2 if no translation exists.

\b
Examples:
  oz translate 'time.*.east' --to redis
  oz translate 'sensor/+/temp' --dialect mqtt --to nats --exchange
  oz translate 'rv:RUN.>' --to regex --json
"""


@click.command(help=_HELP, short_help="Write a pattern in another dialect.")
@click.argument("pattern")
@click.option("--to", "target", required=True, type=click.Choice(oz.DIALECTS), metavar="NAME",
              help=f"The dialect of the translation: {', '.join(oz.DIALECTS)}.")  # fmt: skip
@dialect_option("PATTERN, if it has no dialect name")
@click.option("--exchange", is_flag=True, help="Exchange . and / in subjects too.")
@json_option()
@click.pass_context
def translate(
    ctx: click.Context, pattern: str, target: str, dialect: str, exchange: bool, as_json: bool
) -> None:
    """Translate a pattern; `_HELP` is the text of `--help`."""
    from oz.subjects.translate import translate as translated

    [compiled] = parse_all([pattern], dialect)
    found = translated(compiled, target, exchange=exchange)
    if as_json:
        write_json(_as_data(found))
    else:
        write_line(_as_lines(found))
    if not found.exact:
        ctx.exit(FAILED)


def _as_data(found: Translation) -> dict[str, Any]:
    data: dict[str, Any] = {
        **json_field("pattern", found.pattern.text),
        "dialect": found.pattern.dialect,
        "relation": found.relation,
    }
    for key, subject in (("also_matches", found.also_matches), ("misses", found.misses)):
        data |= {key: None} if subject is None else json_field(key, subject)
    return data | {"undecided": found.undecided}


def _as_lines(found: Translation) -> str:
    lines = [f"pattern: {printable(found.pattern.text)}", f"dialect: {found.pattern.dialect}"]
    lines.append(f"relation: {found.relation}")
    for key, text in (
        ("also matches", found.also_matches),
        ("misses", found.misses),
        ("undecided", found.undecided),
    ):
        if text is not None:
            lines.append(f"{key}: {printable(text)}".rstrip())
    return "\n".join(lines)
