"""Run of a service by a command: the ready line, changes of state, the end at a signal, and the summary.

The name server, forwarder, proxy, gateway, recorder and replay behave in the same way:

=================== ======================================================================================
event               command
=================== ======================================================================================
a wrong argument    exit code 2
cannot begin        exit code 1
ready               one line on stderr, "ready, …"; READY=1 to systemd; `/healthz` of `--metrics` returns 200
not ready any more  `/healthz` returns 503, until the service is ready again
another state       one line, "now …"
SIGINT, SIGTERM     the service stops in order; STOPPING=1 to systemd; the summary is the last line; exit code 0,
                    or 130 and 143 for a replay that is not done
fails while it runs exit code 1
=================== ======================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from oz.cli.output import log_in_lines, print_status, quiet_option
from oz.cli.service_metrics import metrics_server
from oz.cli.stop_signals import StopSignals, hold_signals, stop_on_signals
from oz.cli.systemd import notify_systemd
from oz.system import raise_descriptors

if TYPE_CHECKING:
    from oz.services.service import OnPoll

_IS_READY, _IS_STOPPING, _METRICS = "oz.cli.is_ready", "oz.cli.is_stopping", "oz.cli.metrics"


class Runnable(Protocol):
    """Service that `serve` can run."""

    def run(self, on_poll: OnPoll | None = None, /) -> object:
        """Run the service until `stop` is called; see `oz.services.service.Service.run`."""

    def stop(self) -> object:
        """End `run`. A signal handler calls this method."""


class Opened(Runnable, AbstractContextManager[Any], Protocol):
    """Runnable service that the end of a `with` block closes."""


_Service = TypeVar("_Service", bound=Opened)
_F = TypeVar("_F", bound=Callable[..., Any])


def service_options(command: _F) -> _F:
    """Add the options that all services have. `serve` reads these options."""
    metrics = click.option(
        "--metrics",
        metavar="HOST:PORT",
        expose_value=False,
        callback=_keep_metrics,
        help="Serve metrics to Prometheus at this address, and /healthz for probes.  [default: none]",
    )
    return metrics(quiet_option(command))


def _keep_metrics(ctx: click.Context, _option: click.Parameter, address: str | None) -> None:
    ctx.meta[_METRICS] = address


def report_ready(ctx: click.Context, line: str) -> None:
    """Print the ready line of a service, and report the start to systemd. When the context closes, report the end."""
    ctx.meta[_IS_READY] = True
    print_status(ctx, line)
    # The context reports the end, because the command may end before `serve`: a replay without subscribers, or a signal
    # directly after READY=1.
    ctx.call_on_close(lambda: _report_stopping(ctx))
    notify_systemd("READY=1")


def _report_stopping(ctx: click.Context) -> None:
    ctx.meta[_IS_READY] = False
    if not ctx.meta.get(_IS_STOPPING):
        ctx.meta[_IS_STOPPING] = True
        notify_systemd("STOPPING=1")


def open_and_serve(
    ctx: click.Context,
    make: Callable[[], _Service],
    state: Callable[[_Service], str | None],
    summary: Callable[[_Service], str],
    *,
    level: int = logging.WARNING,
) -> None:
    """Create a service, run it until a signal comes, and close it.

    Args:
        ctx: context of a command with `service_options`. Log records of the service are printed on stderr.
        make: function that creates the service.
        state: function that returns the state of the service as text; None while the service is not ready.
        summary: function that returns the summary of the service as text.
        level: lowest level of the log records to print.
    """
    raise_descriptors()
    with log_in_lines(ctx, level=level), hold_signals(), make() as made:
        serve(ctx, made, lambda: state(made))
        print_status(ctx, summary(made))


def serve(
    ctx: click.Context,
    service: Runnable,
    state: Callable[[], str | None],
    *,
    on_poll: OnPoll | None = None,
) -> StopSignals:
    """Run a service until a signal comes or the service ends; return the handler of the signals.

    Args:
        ctx: context of a command with `service_options`.
        service: service to run.
        state: function that returns the state of the service as text; None while the service is not ready.
        on_poll: function that shows progress on a terminal; None shows no progress.
    """
    printed: str | None = None

    def poll() -> float | None:
        nonlocal printed
        line = state()
        if printed is None:
            if line is not None:
                report_ready(ctx, f"ready, {line}")
        else:
            ctx.meta[_IS_READY] = line is not None
            if line not in (None, printed):
                print_status(ctx, f"now {line}")
        printed = line or printed
        if on_poll is not None:
            on_poll()
            return None
        # None polls ten times a second, because no event reports that a service becomes ready. `inf` waits for events.
        return None if line is None else inf

    with stop_on_signals(service.stop) as signals, serve_metrics(ctx, service):
        try:
            service.run(poll)
        finally:
            _report_stopping(ctx)
    return signals


@contextmanager
def serve_metrics(ctx: click.Context, service: Runnable) -> Iterator[None]:
    """Serve metrics in a `with` block if `--metrics` was given. A second block of the same command has no effect."""
    address = ctx.meta.pop(_METRICS, None)
    with metrics_server(address, service, lambda: ctx.meta.get(_IS_READY, False)) as bound:
        if bound:
            print_status(ctx, f"metrics at http://{bound}/metrics")
        yield
