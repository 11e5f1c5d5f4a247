"""How a command runs a service: the ready line, changes of state, the end by a signal, and the summary.

All services behave alike: name server, forwarder, proxy, gateway, recorder, and a replay until it is done.

=================== ======================================================================================
event               command
=================== ======================================================================================
a wrong argument    exit code 2
cannot begin        exit code 1
ready               one line on stderr, "ready, …"
another state       one line, "now …"
`--progress`        the summary, at most once in each interval, if it has changed
SIGINT, SIGTERM     the service stops in order; the summary is the last line; exit code 0
=================== ======================================================================================
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf
from typing import Any, Protocol, TypeVar

import click
import zmq

from oz.cli.output import log_in_lines, print_status
from oz.cli.stop_signals import StopSignals, stop_on_signals
from oz.system import raise_descriptors


class Runnable(Protocol):
    """Service that `serve` runs."""

    def run(self, look: Callable[[], object] | None = None, /) -> object:
        """Serve until `stop`. `look` is called now and then; see `oz.services.waiting.call_on_poll`."""

    def stop(self) -> object:
        """End `run`; a signal handler calls it."""


class Opened(Runnable, AbstractContextManager[Any], Protocol):
    """Service that a `with` block closes."""


_Service = TypeVar("_Service", bound=Opened)


def open_and_serve(
    ctx: click.Context,
    make: Callable[[], _Service],
    state: Callable[[_Service], str | None],
    summary: Callable[[_Service], str],
    *,
    progress: float | None = None,
    level: int = logging.WARNING,
) -> None:
    """Create a service, run it until a signal comes, and close it.

    Args:
        ctx: of the command. The log of the service becomes its lines.
        make: creates the service.
        state: returns what the service does; None while it is not ready.
        summary: returns what the service has done.
        progress: seconds between two reports of the summary, or None.
        level: of the log.

    Raises:
        click.UsageError: an argument has a wrong value.
    """
    raise_descriptors()
    # A signal in the constructor would leave sockets behind that are half open: `serve` stops the service instead.
    with log_in_lines(ctx, level=level), stop_on_signals(lambda: None):
        try:
            made = make()
        except zmq.ZMQError:
            # An endpoint in use is not wrong usage.
            raise
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        with made:
            serve(ctx, made, lambda: state(made), lambda: summary(made), progress=progress)
            print_status(ctx, summary(made))


def serve(
    ctx: click.Context,
    service: Runnable,
    state: Callable[[], str | None],
    summary: Callable[[], str],
    *,
    progress: float | None = None,
    on_look: Callable[[], object] | None = None,
) -> StopSignals:
    """Run a service until a signal comes, or it ends; return the handler of the signals.

    Args:
        ctx: of the command.
        service: that exists.
        state: returns what the service does; None while it is not ready.
        summary: returns what the service has done.
        progress: seconds between two reports of the summary, or None.
        on_look: shows progress on a terminal.
    """
    printed: str | None = None
    reported = ""
    due = inf if progress is None else time.monotonic() + progress

    def look() -> float | None:
        nonlocal printed, reported, due
        line = state()
        if line is not None and line != printed:
            print_status(ctx, f"{'ready,' if printed is None else 'now'} {line}")
            printed = line
        if progress is not None and time.monotonic() >= due:
            due = time.monotonic() + progress
            if (line := summary()) != reported:
                reported = line
                print_status(ctx, line)
        if on_look is not None:
            on_look()
            return None
        # Nothing wakes a service that is not ready, so that it is asked ten times a second.
        return None if printed is None else due

    with stop_on_signals(service.stop) as signals:
        service.run(look)
    return signals
