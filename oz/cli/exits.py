"""The end of a command: its exit codes, what went wrong in one line, and the standard streams."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

import click
import zmq

import oz
from oz.cli.options import DEFAULT_ENDPOINT
from oz.cli.output import say

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

_NOT_AN_ENDPOINT = (errno.EINVAL, zmq.EPROTONOSUPPORT, zmq.ENOCOMPATPROTO)
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.ENODEV)


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
    if code == errno.EADDRINUSE and not isinstance(error, oz.OzError):
        return f"{text}: end the program that has it, or bind to another endpoint"
    if code in _NOT_HERE:
        return f"{text}: what is bound to is an address of this machine"
    if code in _NOT_AN_ENDPOINT:
        return f"{text}: write an endpoint as {DEFAULT_ENDPOINT} or ipc:///tmp/feed"
    return " ".join(text.split())
