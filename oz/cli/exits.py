"""End of a command: exit codes, errors in one line, and the last output."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click
import zmq

import oz
from oz.cli.options import DEFAULT_ENDPOINT
from oz.cli.output import print_stderr
from oz.cli.stop_signals import INTERRUPTED as INTERRUPTED


def flush_stdout() -> bool:
    """Write the buffered output to stdout; return False if stdout is full or its reader has ended."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        discard_stdout()
        return False
    return True


def discard_stdout() -> None:
    """Redirect stdout to /dev/null. Otherwise Python would try the failed output again at its end, and report it."""
    with suppress(OSError, ValueError):  # the stdout of click's CliRunner has no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


FAILED = 1
USAGE = 2
NOBODY = 3
TIMED_OUT = 4

EXIT_CODES = """\b
Exit codes:
    0  done; match: at least one subject matched
    1  failed; bench, demo: messages were lost; pub, replay: messages are unsent; config: a wrong value;
       doctor: a missing feature; match: no subject matched; request: the responder failed;
       with keys: permissions or a peer refused the command; translate: the translation is not exact
    2  wrong usage, or a bad pattern, subject or endpoint
    3  pub, replay, trace: no subscriber; request, ping: no responder; peers, top: no node
    4  sub, request, ping: no message or answer within --timeout
  130  ended by Ctrl-C
  143  ended by SIGTERM
"""

STOP_SECONDS = 1.0
"""Seconds for which a command tries to send its unsent messages after a signal."""

_NOT_AN_ENDPOINT = (errno.EINVAL, zmq.EPROTONOSUPPORT, zmq.ENOCOMPATPROTO)


@contextmanager
def closed_when_sent(
    ctx: click.Context, publisher: oz.Publisher | oz.Node, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Close a publisher or a node after a `with` block. Before that, wait until all messages are sent.

    Ctrl-C and SIGTERM end the wait. The command then reports unsent messages and exits with 1. If a signal has
    ended the block, or if `is_stopped` returns True, the wait takes at most `STOP_SECONDS`.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        publisher.close(timeout=STOP_SECONDS)
        raise
    finally:
        published = publisher.stats.published
        try:
            # `close` returns the number of unacknowledged messages, which is ignored: they may have arrived.
            publisher.close(timeout=STOP_SECONDS if is_stopped() else None)
        except (KeyboardInterrupt, SystemExit):
            publisher.close(timeout=0)
            print_stderr(
                ctx,
                "ended by a signal while messages were unsent: a subscriber has not received "
                f"the last of the {published} published messages, and will not receive them",
            )
            ctx.exit(FAILED)


def exit_code(error: Exception) -> int:
    """Return the exit code for an error: USAGE or FAILED."""
    if isinstance(error, (oz.PatternError, oz.SubjectError)):
        return USAGE
    if isinstance(error, oz.ConfigurationError) and error.source == "argument":
        return USAGE
    return USAGE if getattr(error, "errno", None) in _NOT_AN_ENDPOINT else FAILED


def describe(error: Exception) -> str:
    """Return the text of an error as one line, with a remedy for a wrong endpoint."""
    text = str(error) or type(error).__name__
    if isinstance(error, oz.ConfigurationError) and error.source == "argument" and error.setting:
        text = f"--{error.setting.replace('_', '-')}: {error.value!r}: {error.rule}"
    code = error.errno if isinstance(error, zmq.ZMQError) else None
    if code in _NOT_AN_ENDPOINT:
        return f"{text}: write an endpoint as {DEFAULT_ENDPOINT} or ipc:///tmp/feed"
    return " ".join(text.split())
