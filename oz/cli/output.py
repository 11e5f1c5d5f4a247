"""Output of commands: lines and JSON on stdout, a console for terminals, and messages on stderr."""

from __future__ import annotations

import base64
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

import oz
from oz.escaping import json_text, printable, raw_text

if TYPE_CHECKING:  # the import of rich takes longer than most commands
    from rich.console import Console

_F = TypeVar("_F", bound=Callable[..., Any])


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def styled(text: str, **style: Any) -> str:
    """Return a text with a style of `click.style` if stdout is a terminal with colours, otherwise the plain text."""
    # NO_COLOR: see https://no-color.org.
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_terminal():
        return text
    return click.style(text, **style)


def console(*, stderr: bool = False) -> Console:
    """Return a rich console that interprets no markup, because brackets in patterns would be markup."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def write_line(line: str | bytes) -> None:
    """Write a line to stdout at once, in UTF-8 with any locale.

    Raises:
        BrokenPipeError: the reader of stdout has closed its end.
    """
    out = sys.stdout.buffer
    # A file name that is not UTF-8 has surrogates. They become backslash escapes.
    out.write((line.encode(errors="backslashreplace") if isinstance(line, str) else line) + b"\n")
    out.flush()


def write_json(value: Any) -> None:
    """Write a value to stdout as indented JSON."""
    write_line(json_text(value, indent=2))


def json_field(name: str, value: str | bytes) -> dict[str, str]:
    """Return `{name: text}`; or `{name_base64: …}` if the value is not UTF-8.

    A text is not UTF-8 if it has surrogate escapes.
    """
    raw = raw_text(value) if isinstance(value, str) else value
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}


def plain_table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as columns that are separated by spaces."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    return "\n".join(lines)


def print_stderr(ctx: click.Context, line: str) -> None:
    """Print the name of the command and a line on stderr. An error of stderr is ignored.

    The line is escaped, because it may contain text of peers.
    """
    # In the context of a group, `command_path` is the group, and `invoked_subcommand` is the command.
    name = f"{ctx.command_path} {ctx.invoked_subcommand or ''}".strip()
    with suppress(OSError):
        click.echo(printable(f"{name}: {line}"), err=True)


def json_option(help: str = "Write a JSON object.") -> Callable[[_F], _F]:
    """Add `-j` and `--json`. The command gets the argument `as_json`."""
    return click.option("-j", "--json", "as_json", is_flag=True, help=help)


_QUIET = "oz.cli.quiet"


def quiet_option(command: _F) -> _F:
    """Add `-q` and `--quiet`, with which `print_status` prints nothing."""
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_set_quiet,
        help="Print no status lines on stderr. Warnings, losses and errors are still printed.",
    )(command)


def _set_quiet(ctx: click.Context, _option: click.Parameter, is_quiet: bool) -> None:
    ctx.meta[_QUIET] = is_quiet


def print_status(ctx: click.Context, line: str) -> None:
    """Print a line about the state of a command by `print_stderr`. With `--quiet`, print nothing."""
    if not is_quiet(ctx):
        print_stderr(ctx, line)


def is_quiet(ctx: click.Context) -> bool:
    """Return whether `--quiet` was given."""
    return bool(ctx.meta.get(_QUIET))


class _Lines(logging.Handler):
    def __init__(self, ctx: click.Context, lead: str, level: int) -> None:
        super().__init__(level)
        self._ctx, self._lead = ctx, lead

    def emit(self, record: logging.LogRecord) -> None:
        print_stderr(self._ctx, f"{self._lead}{printable(record.getMessage())}")


@contextmanager
def log_in_lines(ctx: click.Context, lead: str = "", level: int = logging.WARNING) -> Iterator[None]:
    """Print the log records of oz on stderr in a `with` block, one in each line.

    Args:
        ctx: context of the command.
        lead: text with which each line begins.
        level: lowest level of the records that are printed.
    """
    handler, logger = _Lines(ctx, lead, level), logging.getLogger("oz")
    before = logger.level
    if not logger.isEnabledFor(level):
        logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def warnings_in_lines(ctx: click.Context) -> Iterator[None]:
    """Print warnings of Python on stderr in a `with` block, one in each line."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print_stderr(ctx, f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", oz.SubjectWarning)
        warnings.showwarning = show
        yield
