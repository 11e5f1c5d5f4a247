"""`oz replay`: publish the messages of a journal again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import oz
from oz.cli.exits import NOBODY, closed_when_sent
from oz.cli.joining import bus_options, is_on_bus, is_ready, joined, node_ready_line
from oz.cli.options import (
    DEFAULT_ENDPOINT,
    Number,
    PathName,
    endpoint_options,
    parse_all,
    ready_line,
    security_option,
)
from oz.cli.output import log_in_lines, print_status, print_stderr
from oz.cli.progress import progress_bar
from oz.cli.ranges import RANGES, pattern_option, range_options, span_of
from oz.cli.serving import report_ready, serve, serve_metrics, service_options
from oz.cli.stop_signals import StopSignals, hold_signals
from oz.configuration import resolve_limits
from oz.multicast.endpoints import is_multicast

if TYPE_CHECKING:  # the module needs pyarrow, which is an extra
    from oz.journal import Journal
    from oz.services.replayer import Replay

_HELP = f"""Publish the messages of the journal DIRECTORY again, in the order in which they were recorded.

--speed 1 keeps the times between messages. --speed 10 is ten times as fast, and --speed max is as fast as the
subscribers receive. The command waits for a slow subscriber, so that no message is dropped. Subscribers of oz get the
time of receipt in nanoseconds as the header oz-time-ns. They also get the headers oz-offset, oz-origin, oz-sequence,
oz-position and oz-reply-to, if the journal has these values. A message with several payload frames cannot be published,
and the command counts it.

SIGUSR1 pauses the replay, and a second SIGUSR1 resumes it. After a pause, and after Ctrl-Z and fg, the times between
the following messages are unchanged.

The command waits --wait seconds for a subscriber, and exits 3 if no subscriber comes. With --bus it joins a bus as a
node and publishes there. Without --bind, --connect and --bus it binds {DEFAULT_ENDPOINT}, to which `oz sub` connects.
The command needs the extra ozmq[journal].

{RANGES}

\b
Examples:
  oz replay recorded --speed 10
  oz replay recorded --pattern 'md.xetra.>' --start 2026-03-01T09:00 --end 2026-03-01T09:30
  oz replay recorded --start -1h --end -30m --speed 10
  oz replay recorded --bind tcp://192.0.2.7:5750 --speed max
  oz replay recorded --connect tcp://192.0.2.8:5751
  oz replay recorded --bus trading
"""

SLOWEST = 1e-9
"""Lowest speed that is allowed. With a lower speed, times would overflow."""


def _speed(_ctx: click.Context, _option: click.Parameter, text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not SLOWEST <= speed < float("inf"):
        raise click.BadParameter(f"{text!r} is neither a number greater than 0 nor max")
    return speed


@click.command(help=_HELP, short_help="Publish the messages of a journal again.")
@click.argument("recorded", metavar="DIRECTORY", type=PathName(file_okay=False, path_type=Path))
@endpoint_options(default="--bind")
@bus_options
@click.option("--speed", default="1", metavar="FACTOR", callback=_speed,
              help="The speed relative to the recording, such as 10, or max.  [default: 1]")  # fmt: skip
@pattern_option
@range_options
@click.option("--wait", type=Number(), default=2.0, metavar="SECONDS",
              help="Time to wait for a subscriber.  [default: 2]")  # fmt: skip
@security_option
@service_options
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    recorded: Path,
    bind: list[str],
    connect: list[str],
    speed: float | None,
    pattern: str | None,
    dialect: str,
    start: int | datetime | None,
    end: int | datetime | None,
    wait: float,
    security: oz.Security | None,
    **given: Any,
) -> None:
    """Replay a journal; `_HELP` is the text of `--help`."""
    from oz.journal import Journal
    from oz.services.replayer import Replay

    journal = Journal(recorded)
    compiled = parse_all([pattern], dialect)[0] if pattern is not None else None
    with ExitStack() as opened:
        publisher: oz.Publisher | oz.Node
        if is_on_bus(given):
            settings = given | {"bind": bind, "connect": connect, "security": security}
            # A replay has no subscriptions. Without echo, the node does not receive its own messages.
            options: dict[str, Any] = {"node_options": {"echo": False}, "codec": None}
            publisher = opened.enter_context(joined(ctx, settings, dialect="zmq", on_full="raise", **options))
            line = node_ready_line(publisher, is_whole=is_ready(publisher))
        else:
            if not (bind or connect):
                bind = [DEFAULT_ENDPOINT]
            opened.enter_context(log_in_lines(ctx, "warning: "))
            publisher = _bound(bind, connect, security)
            line = f"{ready_line(publisher.endpoint, bind, connect)}, replaying {recorded}"
        made = Replay(journal, publisher, compiled, start=start, end=end, speed=speed)
        # The metrics are served before the wait for a subscriber, because this wait may be long.
        opened.enter_context(serve_metrics(ctx, made))
        with closed_when_sent(ctx, publisher, lambda: made.is_stopped):
            report_ready(ctx, line)
            if not any(map(is_multicast, (*bind, *connect))):
                _wait_for_subscriber(ctx, publisher, wait)
            with _pausable(made), _progress(made, journal, start, end) as show:
                signals = serve(ctx, made, lambda: None, on_poll=show)
    _report(ctx, made, signals)


def _bound(bind: list[str], connect: list[str], security: oz.Security | None) -> oz.Publisher:
    # The dialect "zmq" allows every recorded subject. With "raise", the replay itself waits while a subscriber is full,
    # so that a signal can end the wait.
    with hold_signals():
        return oz.Publisher(
            bind,
            connect,
            dialect="zmq",
            on_full="raise",
            security=security,
            options=oz.Options(limits=resolve_limits()),
        )


def _report(ctx: click.Context, made: Replay, signals: StopSignals) -> None:
    notes = [f"published {made.stats.published} messages"]
    if made.stats.gaps:
        notes.append(f"passed {made.stats.gaps} gaps, of {made.stats.lost} messages or more")
    if made.stats.refused:
        notes.append(f"{made.stats.refused} could not be published")
    (print_stderr if len(notes) > 1 else print_status)(ctx, "; ".join(notes))
    if made.is_stopped:
        ctx.exit(signals.exit_code)


def _wait_for_subscriber(ctx: click.Context, publisher: oz.Publisher | oz.Node, seconds: float) -> None:
    try:
        publisher.wait_for_subscribers(timeout=seconds)
    except oz.Timeout:
        print_stderr(ctx, f"no subscriber within {seconds:g} s; nothing was published. Give a longer --wait")
        ctx.exit(NOBODY)


@contextmanager
def _pausable(made: Replay) -> Iterator[None]:
    """In a `with` block, pause or resume the replay at each SIGUSR1."""

    def toggle(*_: object) -> None:
        (made.resume if made.is_paused else made.pause)()

    if not hasattr(signal, "SIGUSR1"):
        yield
        return
    before = signal.signal(signal.SIGUSR1, toggle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def _progress(made: Replay, journal: Journal, start: Any, end: Any) -> Iterator[Callable[[], None] | None]:
    first, last = span_of(journal, start, end)
    with progress_bar("replaying", last - first) as update:

        def on_poll() -> None:
            assert update is not None
            state = "paused" if made.is_paused else "replaying"
            done = 0 if made.offset is None else made.offset - first
            update(done, f"{state}, {made.stats.published:,} messages")

        yield on_poll if update is not None else None
