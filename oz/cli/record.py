"""`oz record`: write what arrives to a journal."""

from __future__ import annotations

import gc
import sys
import time
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import oz
from oz.cli.options import (
    DEFAULT_ENDPOINT,
    Number,
    PathName,
    dialect_option,
    endpoint_options,
    parse_all,
    ready_line,
    security_option,
)
from oz.cli.output import log_in_lines, say
from oz.cli.rights import check_subscribed
from oz.cli.stop_signals import stop_on_signals
from oz.configuration import resolve_limits
from oz.system import raise_descriptors

if TYPE_CHECKING:  # needs pyarrow, an extra
    from oz.services.recorder import Recorder

_READY_SECONDS = 1.0
_SHOWN_SECONDS = 0.5
_UNREADY_SECONDS = 0.1  # between two looks at who has not answered yet

_HELP = f"""Record the messages whose subject matches one of the PATTERNs in a journal, a directory.

A message counts as recorded when it is durable; --sync says when that is. It goes on with a journal that is
there, where a record then says that nobody recorded in between. Ends with Ctrl-C or SIGTERM: what has arrived
by then is recorded, and a line says how much that was; the exit code is 0.

With --filtering publisher an oz publisher sends only what matches, and what is lost on the way nevertheless
becomes records that say so. When the disk is full that is said once; what then finds no room in memory either
is counted, and recorded as lost when there is room again.

Without --bind and --connect it connects to {DEFAULT_ENDPOINT}, where `oz pub` publishes; either may be
started first. Needs the extra ozmq[journal].

\b
Examples:
  oz record 'md.>' --journal recorded
  oz record 'rv:RUN.*' 'regex:^order\\.(new|fill)' --journal recorded --connect tcp://192.0.2.7:5750
  oz record 'md.>' --journal recorded --filtering publisher --retain-bytes 50G
"""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MOST_BYTES = 1 << 60
_MOST_DIGITS = 20


def _read_size(_ctx: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.rstrip("KMGTkmgt")
    unit = text[len(digits) :].upper()
    size = int(digits) * _UNITS.get(unit, 0) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else 0
    if not 0 < size <= _MOST_BYTES:
        raise click.BadParameter(f"{text!r} is no size: write 1000000, 64M or 50G")
    return size


_SECONDS = Number(above=True)


@click.command(help=_HELP, short_help="Record what arrives in a journal.")
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@click.option(
    "--journal",
    "directory",
    required=True,
    type=PathName(file_okay=False, path_type=Path),
    help="The directory of the journal; made if it is not there.",
)
@dialect_option("patterns that name none")
@endpoint_options(default="--connect")
@click.option(
    "--filtering",
    type=click.Choice(["prefix", "publisher"]),
    default="prefix",
    help="The side that filters: ZeroMQ by prefix, or an oz publisher.  [default: prefix]",
)
@click.option(
    "--dedupe",
    is_flag=True,
    help="Leave out what was published again with an id that is in the journal; with --filtering publisher.",
)
@click.option(
    "--sync",
    type=click.Choice(["batch", "interval", "never"]),
    default="batch",
    help="When messages are made durable: at every commit (up to 100 times a second), once a second, or when "
    "the system sees fit.  [default: batch]",
)
@click.option(
    "--segment-bytes",
    default="64M",
    metavar="SIZE",
    callback=_read_size,
    help="Begin a new file at this size.  [default: 64M]",
)
@click.option(
    "--segment-seconds",
    type=_SECONDS,
    default=3600.0,
    metavar="SECONDS",
    help="Begin a new file at this age.  [default: 3600]",
)
@click.option(
    "--retain-bytes",
    metavar="SIZE",
    callback=_read_size,
    help="Remove the oldest files when all are larger than this.",
)
@click.option("--retain-seconds", type=_SECONDS, metavar="SECONDS", help="Remove files with nothing newer.")
@security_option
@click.pass_context
def record(
    ctx: click.Context,
    /,
    patterns: tuple[str, ...],
    directory: Path,
    dialect: str,
    bind: list[str],
    connect: list[str],
    filtering: str,
    dedupe: bool,
    security: oz.Security | None,
    **writer: Any,
) -> None:
    """Record; the text of the help is `_HELP`."""
    from oz.services.recorder import Recorder

    raise_descriptors()
    if dedupe and filtering != "publisher":
        raise click.UsageError("--dedupe needs --filtering publisher: only then do messages have ids")
    compiled = parse_all(patterns, dialect)
    check_subscribed(security, compiled, is_routed=filtering == "publisher")
    # Messages refer to nothing that refers to them: looking for such circles among them is in vain.
    gc.set_threshold(100_000, 20, 100)
    if not (bind or connect):
        connect = [DEFAULT_ENDPOINT]
    with (
        log_in_lines(ctx),
        Recorder(
            directory,
            compiled,
            connect=connect,
            bind=bind,
            filtering="publisher" if filtering == "publisher" else "prefix",
            subscriber={"dedupe": dedupe, "limits": resolve_limits(), "security": security},
            **writer,
        ) as recorder,
    ):
        shown = _RecorderLines(ctx, recorder, directory)
        line = f"{ready_line(recorder.subscriber, bind, connect)}, recording in {directory}"
        with stop_on_signals(recorder.stop):
            shown.begin(
                f"{line} from offset {recorder.writer.end_offset}", is_routed=filtering == "publisher"
            )
            try:
                recorder.run(shown.look)
            finally:
                shown.summary()


class _RecorderLines:
    """Says when it is ready and what it did, and on a terminal how it goes."""

    def __init__(self, ctx: click.Context, recorder: Recorder, directory: Path) -> None:
        self._ctx, self._recorder, self._directory = ctx, recorder, directory
        self._unsaid: str | None = None
        self._is_terminal = sys.stderr.isatty()
        self._since = time.monotonic()
        self._recorded = 0

    def begin(self, line: str, *, is_routed: bool) -> None:
        """Say that it is ready, once the publishers have answered."""
        self._unsaid = line
        self._look_ready(_READY_SECONDS)
        if self._unsaid is not None and is_routed:
            say(self._ctx, "not every publisher has answered yet; recording what comes")

    def _look_ready(self, seconds: float) -> None:
        if self._unsaid is not None:
            with suppress(oz.Timeout):
                self._recorder.wait_ready(seconds)
                say(self._ctx, self._unsaid)
                self._unsaid = None

    def look(self) -> float:
        """Show how it goes, now and then; return when there is more to show, in monotonic seconds."""
        self._look_ready(0)
        now = time.monotonic()
        if not self._is_terminal:
            return inf if self._unsaid is None else now + _UNREADY_SECONDS
        if now - self._since < _SHOWN_SECONDS:
            return self._since + _SHOWN_SECONDS
        stats = self._recorder.stats
        rate = (stats.recorded - self._recorded) / (now - self._since)
        self._since, self._recorded = now, stats.recorded
        state = "  DISK FULL" if stats.is_full else ""
        lag = self._recorder.lag * 1000
        sys.stderr.write(
            f"\r\x1b[K{stats.recorded:,} messages  {rate:,.0f}/s  {lag:,.0f} ms behind  "
            f"{_size(_bytes_in(self._directory))}  {stats.lost:,} lost{state}"
        )
        sys.stderr.flush()
        return now + _SHOWN_SECONDS

    def summary(self) -> None:
        """Say what was done."""
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
        stats = self._recorder.stats
        left = f"; {self._recorder.waiting} could not be recorded" if self._recorder.waiting else ""
        if stats.gone:
            left = f"; {stats.gone} that were recorded are gone with their files{left}"
        end = self._recorder.writer.end_offset
        say(
            self._ctx,
            f"recorded {stats.recorded} messages, up to offset {end}; {stats.lost} known to be lost{left}",
        )


def _bytes_in(directory: Path) -> int:
    total = 0
    for path in directory.glob("*.arrow*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
