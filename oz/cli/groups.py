"""Groups of commands. They import the module of a command when it is used, and end with exit codes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import click
import zmq

import oz
from oz.cli.exits import FAILED, INTERRUPTED, describe, discard_stdout, exit_code, flush_stdout
from oz.cli.output import print_stderr, warnings_in_lines
from oz.cli.stop_signals import StopSignals
from oz.escaping import printable


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is used."""

    def __init__(self, *args: Any, package: str, sections: Mapping[str, Sequence[str]], **extra: Any) -> None:
        """Create a group from the names of its commands.

        Args:
            args: positional arguments of `click.Group`.
            package: package that contains the modules. A module has the name of its command.
            sections: dict from the heading of each section of `--help` to the names of its commands.
            extra: keyword arguments of `click.Group`.
        """
        super().__init__(*args, **extra)
        self._package, self._sections = package, sections
        self._names = [name for names in sections.values() for name in names]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return self._names

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of `--help`. The columns of all sections are aligned."""
        width = max(map(len, self._names))
        limit = formatter.width - width - 6
        for heading, names in self._sections.items():
            with formatter.section(heading):
                commands = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl(
                    [
                        (f"{name:{width}}", command.get_short_help_str(limit))
                        for name, command in commands
                        if command
                    ]
                )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with a name; None if no command has the name."""
        if cmd_name not in self._names:
            return None
        command = getattr(import_module(f"{self._package}.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


class TidyGroup(LazyGroup):
    """A group whose commands report an error as one line on stderr, and end with an exit code."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run the program and exit. An error of stdin, stdout or stderr is also reported as one line."""
        extra["prog_name"] = prog_name
        if not extra.get("standalone_mode", True):
            return super().main(args, **extra)
        if None in (sys.stdin, sys.stdout, sys.stderr):
            closed = "oz: standard input, output or error is closed: redirect it, as in </dev/null"
            click.echo(closed, err=True)
            sys.exit(FAILED)
        with StopSignals().installed():
            code = self._ended(args, extra | {"standalone_mode": False})
            if not flush_stdout() and code == 0:
                code = FAILED
        sys.exit(code)

    def _ended(self, args: Sequence[str] | None, extra: dict[str, Any]) -> int:
        try:
            code = super().main(args, **extra)
        except click.ClickException as error:
            with suppress(OSError):  # stderr may be full.
                error.show()
            return error.exit_code
        except (click.Abort, KeyboardInterrupt):
            return INTERRUPTED
        except OSError as error:
            with suppress(OSError):
                click.echo(printable(f"oz: {describe(error)}"), err=True)
            return FAILED
        return code if isinstance(code, int) else 0

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the arguments. `--help` and `--version` write their output in this step, possibly to a closed pipe."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            discard_stdout()
            raise click.exceptions.Exit(0) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Ctrl-C, a closed stdout and known errors end the command without a traceback."""
        try:
            with warnings_in_lines(ctx):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            discard_stdout()
            ctx.exit(0)
        except (oz.OzError, zmq.ZMQError, OSError) as error:
            print_stderr(ctx, describe(error))
            ctx.exit(exit_code(error))
