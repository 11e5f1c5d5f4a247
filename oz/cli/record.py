"""`oz record`: write incoming messages to a journal."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import oz
from oz.cli.joining import bus_options, is_on_bus, is_ready, joined, node_ready_line
from oz.cli.options import (
    DEFAULT_ENDPOINT,
    SOCKET_READY_SECONDS,
    Number,
    PathName,
    dialect_option,
    endpoint_options,
    filtering_option,
    group_option,
    parse_all,
    ready_line,
    security_option,
)
from oz.cli.output import log_in_lines, print_status, print_stderr
from oz.cli.progress import progress_bar
from oz.cli.rights import check_subscribed
from oz.cli.serving import serve, service_options
from oz.cli.stop_signals import hold_signals, stop_on_signals
from oz.configuration import resolve_limits
from oz.system import raise_descriptors

if TYPE_CHECKING:  # the module needs pyarrow, which is an extra
    from oz.services.recorder import Recorder

SHOWN_INTERVAL = 0.5  # seconds

_HELP = f"""Record the messages whose subject matches one of the PATTERNs in a journal, which is a directory.

A message counts as recorded when it is written to the disk, and --sync sets the time of the write. An existing journal
is continued, and a gap record marks the time in which nothing was recorded. At Ctrl-C or SIGTERM the command records
the messages that have arrived, prints their number, and exits 0.

An oz publisher sends only matching messages, and lost messages become gap records. With --bus the command joins a bus
as a node and records the messages of all nodes. If the disk is full, the command reports it once and tries again.
Messages that do not fit into its memory are counted, and become gap records. If several commands have the same --group,
each message is recorded by one of them.

Without --bind, --connect and --bus it connects to {DEFAULT_ENDPOINT}, where `oz pub` publishes. `oz record` and
`oz pub` may be started in any order. The command needs the extra ozmq[journal].

\b
Examples:
  oz record 'md.>' --journal recorded
  oz record '>' --journal recorded --bus trading
  oz record 'rv:RUN.*' 'regex:^order\\.(new|fill)' --journal recorded --connect tcp://192.0.2.7:5750
  oz record 'md.>' --journal recorded --retain-bytes 50G
  oz record 'job.>' --journal part1 --group recorders
"""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MAX_BYTES = 1 << 60
_WRITER_OPTIONS = ("sync", "segment_bytes", "segment_seconds", "retain_bytes", "retain_seconds")


def _read_size(_ctx: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.rstrip("KMGTkmgt")
    unit = _UNITS.get(text[len(digits) :].upper(), 0)
    size = int(digits) * unit if digits.isdecimal() and len(digits) <= 20 else 0
    if not 0 < size <= _MAX_BYTES:
        raise click.BadParameter(f"{text!r} is no size: write 1000000, 64M or 50G")
    return size


def _read_sync(_ctx: click.Context, _option: click.Parameter, text: str) -> str | float:
    if text in ("batch", "none"):
        return text
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < 1e6:
            return seconds
    raise click.BadParameter(f"{text!r} is neither batch, none, nor a number of seconds")


@click.command(help=_HELP, short_help="Record the messages that arrive in a journal.")
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@click.option("--journal", required=True, type=PathName(file_okay=False, path_type=Path),
              help="The directory of the journal. A missing directory is created.")  # fmt: skip
@dialect_option("patterns without a dialect name")
@endpoint_options(default="--connect")
@bus_options
@filtering_option
@group_option("Each message is recorded by one of the recorders of this group.")
@click.option(
    "--dedupe",
    is_flag=True,
    help="Drop a message if an earlier message had the same id. Plain ZeroMQ messages have no ids.",
)
@click.option(
    "--sync",
    default="batch",
    metavar="WHEN",
    callback=_read_sync,
    help="Time at which messages are written to the disk: batch for each append (at most 100 a second); a number of "
    "seconds; or none, if the system decides.  [default: batch]",
)
@click.option("--segment-bytes", default="64M", metavar="SIZE", callback=_read_size,
              help="Begin a new file at this size.  [default: 64M]")  # fmt: skip
@click.option("--segment-seconds", type=Number(above=True), default=3600.0, metavar="SECONDS",
              help="Begin a new file at this age.  [default: 3600]")  # fmt: skip
@click.option("--retain-bytes", metavar="SIZE", callback=_read_size,
              help="Remove the oldest files when all files together are larger than this.")  # fmt: skip
@click.option("--retain-seconds", type=Number(above=True), metavar="SECONDS",
              help="Remove files whose last message is older than this.")  # fmt: skip
@security_option
@service_options
@click.pass_context
def record(
    ctx: click.Context,
    /,
    patterns: tuple[str, ...],
    journal: Path,
    dialect: str,
    connect: list[str],
    filtering: str,
    group: str | None,
    dedupe: bool,
    **given: Any,
) -> None:
    """Record messages; `_HELP` is the text of `--help`."""
    from oz.services.recorder import Recorder

    raise_descriptors()
    is_bus, bind, security = is_on_bus(given), given["bind"], given["security"]
    writer = {name: given.pop(name) for name in _WRITER_OPTIONS}
    if is_bus and (dedupe or filtering != "auto"):
        raise click.UsageError("--dedupe and --filtering do not go with --bus")
    if filtering == "prefix" and (dedupe or group):
        raise click.UsageError("--dedupe and --group do not go with --filtering prefix")
    compiled = parse_all(patterns, dialect)
    check_subscribed(
        security, compiled, is_routed=is_bus or not (bind or filtering == "prefix"), group=group or ""
    )
    # Messages are in no reference cycles. With the default threshold, the collector would visit each message often.
    gc.set_threshold(100_000, 20, 100)
    if is_bus:
        with (
            hold_signals(),
            joined(ctx, given | {"connect": connect}, node_options={"echo": False}, codec=None) as node,
            Recorder(journal, compiled, source=node, group=group, **writer) as recorder,
        ):
            _run(ctx, recorder, lambda: node_ready_line(node, is_whole=is_ready(node)))
        return
    if not (bind or connect):
        connect = [DEFAULT_ENDPOINT]
    options = {
        "bind": bind,
        "filtering": filtering,
        "security": security,
        "options": oz.Options(dedupe=dedupe, limits=resolve_limits()),
    }
    with (
        log_in_lines(ctx),
        hold_signals(),
        Recorder(journal, compiled, source=connect, group=group, subscriber=options, **writer) as recorder,
    ):
        assert recorder.subscriber is not None
        ready = ready_line(recorder.subscriber.endpoint, bind, connect, have_answered=True)
        line = f"{ready}, recording in {journal} from offset {recorder.writer.end_offset}"
        _run(ctx, recorder, lambda: line)


def _run(ctx: click.Context, recorder: Recorder, line: Callable[[], str]) -> None:
    """Record until a signal comes, and print the counts. `line` is called when all publishers have answered."""
    printed: str | None = None

    def state() -> str | None:
        nonlocal printed
        if printed is None:
            with suppress(oz.Timeout):
                recorder.wait_ready(timeout=0)
                printed = line().removeprefix("ready, ")
        return printed

    def summary() -> str:
        return (
            f"recorded {recorder.stats.recorded} messages, up to offset {recorder.writer.end_offset}; "
            f"{recorder.stats.lost} known to be lost"
        )

    try:
        with stop_on_signals(recorder.stop):
            try:
                recorder.wait_ready(timeout=SOCKET_READY_SECONDS)
            except oz.Timeout as error:
                print_stderr(ctx, f"{error}; recording the messages that arrive")
            with _shown(recorder) as show:
                serve(ctx, recorder, state, on_poll=show)
    finally:
        left = f"; {recorder.pending} could not be recorded" if recorder.pending else ""
        report = print_stderr if recorder.stats.lost or left else print_status
        report(ctx, summary() + left)


@contextmanager
def _shown(recorder: Recorder) -> Iterator[Any]:
    """Show the counts and the rate on a terminal; yield the function that updates them, or None without a terminal."""
    since, recorded = time.monotonic(), 0
    with progress_bar("waiting for messages", None) as update:

        def show() -> None:
            nonlocal since, recorded
            now, stats = time.monotonic(), recorder.stats
            if now - since < SHOWN_INTERVAL:
                return
            rate = (stats.recorded - recorded) / (now - since)
            since, recorded = now, stats.recorded
            state = "  DISK FULL" if stats.is_full else ""
            text = f"{recorded:,} messages  {rate:,.0f}/s  {recorder.pending:,} pending  {stats.lost:,} lost"
            assert update is not None
            update(recorded, f"{text}{state}")

        yield show if update is not None else None
