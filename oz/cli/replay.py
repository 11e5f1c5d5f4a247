"""`oz replay`: publish what a journal holds once more."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import oz
from oz.cli.exits import INTERRUPTED, NOBODY, close_when_sent
from oz.cli.options import (
    DEFAULT_ENDPOINT,
    Number,
    PathName,
    dialect_option,
    endpoint_options,
    parse_all,
    ready_line,
    refused_to_option,
    security_option,
    socket_refused,
)
from oz.cli.output import console, say
from oz.cli.ranges import RANGES, range_options
from oz.cli.stop_signals import stop_on_signals
from oz.configuration import resolve_limits
from oz.transport.multicast.endpoint import is_multicast

if TYPE_CHECKING:  # needs pyarrow, an extra
    from oz.journal import Journal
    from oz.services.replayer import Control, ReplayStats

_HELP = f"""Publish the messages of the journal DIRECTORY once more, in the order in which they were recorded.

--speed 1 keeps the time between them, 10 is ten times as fast, max as fast as subscribers take them. A
subscriber that cannot keep up is waited for, so nothing is dropped. Subscribers with --filtering publisher
get the original time in nanoseconds as the header oz-time-ns, and oz-offset, oz-origin, oz-sequence,
oz-position and oz-reply-to where the journal has them.

SIGUSR1 pauses it, and again lets it go on; so does the space bar on a terminal, where q ends it. After a
pause, and after Ctrl-Z and fg, what follows keeps its distance in time.

Waits --wait seconds for a subscriber; when none comes it says so and exits 3. Without --bind and --connect it
binds {DEFAULT_ENDPOINT}, where `oz sub` looks for it. Needs the extra ozmq[journal].

{RANGES}

\b
Examples:
  oz replay recorded --speed 10
  oz replay recorded --subject 'md.xetra.>' --from 2026-03-01T09:00 --until 2026-03-01T09:30
  oz replay recorded --from -1h --until -30m --speed 10
  oz replay recorded --bind tcp://192.0.2.7:5750 --speed max
  oz replay recorded --connect tcp://192.0.2.8:5751
"""


_SLOWEST = 1e-9  # slower than that clocks overflow, and nothing comes in a lifetime


def _speed(_ctx: click.Context, _option: click.Parameter, text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not _SLOWEST <= speed < float("inf"):
        raise click.BadParameter(f"{text!r} is neither a number greater than 0 nor max")
    return speed


@click.command(help=_HELP, short_help="Publish what a journal holds once more.")
@click.argument("directory", type=PathName(file_okay=False, path_type=Path))
@endpoint_options(default="--bind")
@refused_to_option
@click.option("--speed", default="1", metavar="FACTOR", callback=_speed,
              help="The speed: so many times as fast as recorded, or max.  [default: 1]")  # fmt: skip
@click.option("--subject", metavar="PATTERN", help="Only what this pattern matches.")
@dialect_option("the pattern when it names none")
@range_options()
@click.option("--wait", type=Number(), default=2.0, metavar="SECONDS",
              help="Time to wait for a subscriber.  [default: 2]")  # fmt: skip
@security_option
@click.pass_context
def replay(
    ctx: click.Context,
    directory: Path,
    bind: list[str],
    connect: list[str],
    speed: float | None,
    subject: str | None,
    dialect: str,
    start: int | datetime | None,
    end: int | datetime | None,
    wait: float,
    security: oz.Security | None,
) -> None:
    """Replay; the text of the help is `_HELP`."""
    from oz.journal import Journal
    from oz.services import replayer

    found = Journal(directory)
    pattern = parse_all([subject], dialect)[0] if subject is not None else None
    if not (bind or connect):
        bind = [DEFAULT_ENDPOINT]
    control, stats = replayer.Control(), replayer.ReplayStats()
    # Whatever was recorded was a subject: the plain dialect allows all of them.
    # It is the replay that waits for room, so that a signal or a key can end it.
    with socket_refused():
        publisher = oz.Publisher(
            bind, connect, dialect="zmq", on_full="error", limits=resolve_limits(), security=security
        )
    with _closed_when_sent(ctx, publisher, control):
        say(ctx, f"{ready_line(publisher, bind, connect)}, replaying {directory}")
        if not any(map(is_multicast, (*bind, *connect))):
            _await_subscriber(ctx, publisher, wait)
        with _steered(control), _progress(found, start, end, control, stats) as look:
            replayer.replay(
                found,
                publisher,
                pattern,
                start=start,
                end=end,
                speed=speed,
                wait_for_room=True,
                control=control,
                stats=stats,
                on_look=look,
            )
    _report(ctx, stats)
    if control.is_stopped:
        ctx.exit(INTERRUPTED)


@contextmanager
def _closed_when_sent(ctx: click.Context, publisher: oz.Publisher, control: Control) -> Iterator[None]:
    try:
        yield
    except BaseException:
        publisher.close(timeout=1.0)
        raise
    # What a slow subscriber has not fetched yet is still here: wait for it, unless it was ended early.
    if control.is_stopped:
        publisher.close(timeout=1.0)
    else:
        close_when_sent(ctx, publisher)


def _await_subscriber(ctx: click.Context, publisher: oz.Publisher, seconds: float) -> None:
    try:
        publisher.wait_for_subscribers(1, timeout=seconds)
    except oz.Timeout:
        say(ctx, f"nobody subscribed within {seconds:g} s; nothing was published")
        ctx.exit(NOBODY)


def _report(ctx: click.Context, stats: ReplayStats) -> None:
    notes = [f"published {stats.published} messages"]
    if stats.gaps:
        notes.append(f"{stats.gaps} records of losses passed by, of {stats.lost} messages or more")
    if stats.refused:
        notes.append(f"{stats.refused} could not be published")
    say(ctx, "; ".join(notes))


@contextmanager
def _steered(control: Control) -> Iterator[None]:
    """Pause and resume at SIGUSR1; stop at SIGINT and SIGTERM."""
    if not hasattr(signal, "SIGUSR1"):
        with stop_on_signals(control.stop):
            yield
        return
    before = signal.signal(signal.SIGUSR1, lambda *_: control.toggle())
    try:
        with stop_on_signals(control.stop):
            yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def _progress(
    journal: Journal, start: Any, end: Any, control: Control, stats: ReplayStats
) -> Iterator[Callable[[], None] | None]:
    """Show a bar on stderr while it lasts, if that is a terminal; gives what is to be called now and then."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    first = max(start, journal.first_offset) if isinstance(start, int) else journal.first_offset
    last = min(end, journal.end_offset) if isinstance(end, int) else journal.end_offset
    columns = (TextColumn("{task.fields[state]}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
               TextColumn("{task.fields[published]:,} messages"))  # fmt: skip
    with _keys(control) as look_at_keys, Progress(*columns, console=screen) as bar:
        task = bar.add_task("", total=max(1, last - first), state="replaying", published=0)

        def look() -> None:
            look_at_keys()
            state = "paused   " if control.is_paused else "replaying"
            bar.update(task, completed=stats.passed - first, state=state, published=stats.published)

        yield look
        bar.update(task, completed=max(1, last - first), published=stats.published)


@contextmanager
def _keys(control: Control) -> Iterator[Callable[[], None]]:
    """Let keys steer it, if somebody types; gives what looks whether somebody has."""
    if not sys.stdin.isatty():
        yield lambda: None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def look() -> None:
        while select.select([descriptor], [], [], 0)[0]:
            key = os.read(descriptor, 1)
            if key in (b" ", b"p"):
                control.toggle()
            elif key in (b"q", b""):
                control.stop()
                return

    tty.setcbreak(descriptor)
    try:
        yield look
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
