"""The end of a command: its exit codes, and one line instead of a traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import click
import zmq

import oz
from oz.cli.options import DEFAULT_ENDPOINT
from oz.cli.signals import interruptible

_DESCRIPTORS = (0, 1, 2)


def stand_in() -> None:
    """Put something in the place of each standard stream that is closed, as after `<&-`.

    Its descriptor is taken: the next file or socket that is opened would get it, and what a library writes on
    stderr would go there. Reading and writing say what is wrong.
    """
    for descriptor in _DESCRIPTORS:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed(0, "input to read from")))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Closed(1, "output to write to")))
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def settle() -> bool:
    """Write what is left in stdout and stderr; tell whether all of it could be.

    A stream that takes no more is dropped, or Python would try once more as it ends, and complain.
    """
    out, err = _settle(sys.stdout), _settle(sys.stderr)  # both, whatever becomes of the first
    return out and err


def _settle(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        forget(stream)
        return False
    return True


def forget(stream: TextIO) -> None:
    """Let what is written to a stream, and what is left in it, go nowhere."""
    with suppress(OSError, ValueError):  # a test's stream is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
        if isinstance(raw := _raw(stream), _Closed):
            raw.is_forgotten = True


def _raw(stream: TextIO) -> object:
    buffer = stream.buffer
    return buffer.raw if isinstance(buffer, io.BufferedWriter) else buffer


class _Closed(io.RawIOBase):
    """A stream that is not there."""

    def __init__(self, descriptor: int, what: str) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._what = what
        self.is_forgotten = False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False

    def readinto(self, _buffer: Any) -> int:
        raise self._error()

    def write(self, data: Any) -> int:
        if self.is_forgotten:
            return len(data)
        raise self._error()

    def _error(self) -> OSError:
        return OSError(f"there is no standard {self._what}")


FAILED = 1
USAGE = 2
NOBODY = 3
TIMED_OUT = 4
INTERRUPTED = 130

EXIT_CODES = """\b
Exit codes:
    0  done; match: at least one subject matched
    1  failed; bench, demo: messages were lost; pub, replay: some are unsent; config: something is wrong;
       doctor: something is missing; match: no subject matched; request: whoever was asked failed;
       translate: not exact
    2  wrong usage, or a bad pattern, subject or endpoint
    3  pub, replay: nobody subscribed; request: nobody would answer; peers: nobody is there
    4  sub, request: no message or answer within --timeout
  130  ended by Ctrl-C
  143  a node ended by SIGTERM
"""

_NOT_AN_ENDPOINT = (errno.EINVAL, zmq.EPROTONOSUPPORT)
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.ENODEV)


class TidyGroup(click.Group):
    """A group whose commands end with an exit code and at most one line on stderr."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run the program, and end it; what is wrong with stdin, stdout or stderr is one line too."""
        extra["prog_name"] = prog_name
        if not extra.get("standalone_mode", True):
            return super().main(args, **extra)
        stand_in()
        code = self._ended(args, extra | {"standalone_mode": False})
        if not settle() and code == 0:
            code = FAILED
        sys.exit(code)

    def _ended(self, args: Sequence[str] | None, extra: dict[str, Any]) -> int:
        """Run the program; give the exit code."""
        try:
            code = super().main(args, **extra)
        except click.ClickException as error:
            with suppress(OSError):  # stderr is full: nobody can be told
                error.show()
            return error.exit_code
        except click.Abort:
            return INTERRUPTED
        except OSError as error:
            with suppress(OSError):
                click.echo(f"oz: {describe(error)}", err=True)
            return FAILED
        return code if isinstance(code, int) else 0

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments; `--help` and `--version` are answered here, and a pipe may have no reader."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            forget(sys.stdout)
            raise click.exceptions.Exit(0) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C, a reader that went away and known errors end it quietly."""
        try:
            with interruptible(), _warnings_in_one_line(ctx):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            forget(sys.stdout)
            ctx.exit(0)
        except (oz.OzError, zmq.ZMQError, OSError) as error:
            say(ctx, describe(error))
            ctx.exit(exit_code(error))


def say(ctx: click.Context, line: str) -> None:
    """Print one line on stderr, after the name of the command; where that is full nobody can be told."""
    # Only the group knows here which command runs; the command itself knows its own whole path.
    name = f"{ctx.command_path} {ctx.invoked_subcommand or ''}".strip()
    with suppress(OSError):
        click.echo(f"{name}: {line}", err=True)


def close_when_sent(ctx: click.Context, publisher: oz.Publisher) -> None:
    """Wait until subscribers have fetched what was published, as long as it takes.

    Ctrl-C ends that. The command says that something is unsent then, and exits with 1.
    """
    published = publisher.stats.published
    try:
        publisher.close(linger=-1)
    except KeyboardInterrupt:
        publisher.close(linger=0)
        say(ctx, unsent(published))
        ctx.exit(FAILED)


def unsent(published: int) -> str:
    """Say what Ctrl-C left behind; how many those are only ZeroMQ could tell, and does not."""
    return (
        "ended by Ctrl-C while messages were unsent: some subscriber has not fetched "
        f"the last of the {published} that were published, and will not get them"
    )


def exit_code(error: Exception) -> int:
    """Tell what the user wrote wrongly from what failed."""
    if isinstance(error, (oz.PatternError, oz.SubjectError)):
        return USAGE
    return USAGE if getattr(error, "errno", None) in _NOT_AN_ENDPOINT else FAILED


def describe(error: Exception) -> str:
    """Say in one line what is wrong and what to do about it."""
    text = str(error) or type(error).__name__
    code = error.errno if isinstance(error, zmq.ZMQError) else None
    if code == errno.EADDRINUSE:
        return f"{text}: end the program that has it, or choose another endpoint with --bind"
    if code in _NOT_HERE:
        return f"{text}: --bind takes an address of this machine"
    if code in _NOT_AN_ENDPOINT:
        return f"{text}: write an endpoint as {DEFAULT_ENDPOINT} or ipc:///tmp/feed"
    return " ".join(text.split())


@contextmanager
def _warnings_in_one_line(ctx: click.Context) -> Iterator[None]:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(ctx, f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", oz.SubjectWarning)
        warnings.showwarning = show
        yield
