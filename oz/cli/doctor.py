"""`oz doctor`: features of this installation, and a command to install each missing feature."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import asdict
from itertools import groupby

import click

from oz.cli.exits import FAILED
from oz.cli.output import json_option, print_stderr, styled, write_json, write_line
from oz.doctor import Check, Examination, examine
from oz.escaping import printable

_HELP = """Show the features of this installation, and a command that installs each missing feature.

The command checks Python, the packages of oz, pyzmq and libzmq with their build options (pgm, curve, ipc, draft),
pyarrow, PySpark, Java, and limits of the system. A limit that is "low" may be too small for many messages or
connections. The command changes nothing.

If a required feature or a feature that --require names is missing, the command prints the name of the feature on stderr
and exits 1. Otherwise it exits 0. Other optional features and limits do not change the exit code.

\b
Examples:
  oz doctor
  oz doctor --require pgm --require java
  oz doctor --json | jq -r '.findings[] | select(.state == "no").add'
"""

_MARKS = {"yes": "yes", "low": "low", "no": "no", "broken": "NO"}
_COLOURS = {"yes": "green", "low": "yellow", "no": "yellow", "broken": "red"}
_WIDEST = 100
_INDENT = "      "


@click.command(help=_HELP, short_help="Show the features of this installation, and how to add missing ones.")
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="NAME",
    help="Exit 1 without this feature; may be repeated.",
)
@json_option()
@click.pass_context
def doctor(ctx: click.Context, required: tuple[str, ...], as_json: bool) -> None:
    """Check the features; `_HELP` is the text of `--help`."""
    found = examine()
    unknown = [name for name in required if name not in found.names]
    if unknown:
        raise click.BadParameter(
            f"no feature has the name {unknown[0]!r}; the features are {', '.join(found.names)}",
            param_hint="--require",
        )
    missing = found.missing(required)
    if as_json:
        write_json({"ok": not missing, "findings": [asdict(finding) for finding in found.findings]})
    else:
        _show(found)
    if missing:
        print_stderr(ctx, f"missing: {', '.join(extra.name for extra in missing)}")
        ctx.exit(FAILED)


def _show(found: Examination) -> None:
    """Write the findings. Notes are wrapped. A command stays on one line, so that a user can paste it."""
    columns = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    width = max(map(len, found.names))
    for group, findings in groupby(found.findings, key=lambda item: item.group):
        write_line(styled(group, bold=True))
        for finding in findings:
            write_line(_heading(finding, width))
            for line in _notes(finding, columns):
                write_line(f"{_INDENT}{line}")
            if finding.add:
                write_line(f"{_INDENT}add it: {finding.add}")


def _heading(finding: Check, width: int) -> str:
    mark = styled(f"{_MARKS[finding.state]:<4}", fg=_COLOURS[finding.state])
    return f"  {mark}{finding.name:<{width}}  {printable(finding.value)}".rstrip()


def _notes(finding: Check, columns: int) -> list[str]:
    return textwrap.wrap(printable(finding.note), max(20, columns - len(_INDENT)), break_on_hyphens=False)
