"""`oz pub`: publish from the command line, losing nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

import click

import oz
from oz.cli.exits import NOBODY, say
from oz.cli.options import DEFAULT_ENDPOINT, dialect_option, endpoint_options
from oz.cli.output import printable

_FROM_STDIN = "-"

_HELP = f"""Publish PAYLOAD on SUBJECT.

Without a PAYLOAD each line of stdin is one. When SUBJECT is - each line of stdin is a subject, a space and a
payload, which is what `oz sub` prints; blank lines are skipped.

Waits --wait seconds for a subscriber that is interested in the subject; when none comes it says so and exits 3.
A subscriber that cannot keep up is waited for, so nothing is dropped. Without --bind and --connect it binds
{DEFAULT_ENDPOINT}, where `oz sub` looks for it; either may be started first.

\b
Examples:
  oz pub time.new.east 12:00
  oz pub sensor.1.temp 21.5 --count 10 --interval 1
  tail -f app.log | oz pub log.web1
  printf '%s\\n' 'a.b one' 'a.c two' | oz pub - --connect tcp://192.0.2.7:5750
"""

Message = tuple[bytes, bytes]


@click.command(help=_HELP)
@click.argument("subject")
@click.argument("payload", required=False)
@dialect_option("the subject")
@endpoint_options(default="--bind")
@click.option("--count", type=click.IntRange(min=1), help="Publish PAYLOAD so many times.  [default: 1]")
@click.option("--interval", type=click.FloatRange(min=0), default=0.0, help="Seconds between two messages.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    help="Seconds to wait for a subscriber.",
)
@click.pass_context
def pub(
    ctx: click.Context,
    subject: str,
    payload: str | None,
    dialect: str,
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    count: int | None,
    interval: float,
    wait: float,
) -> None:
    """Publish; the text of the help is `_HELP`."""
    messages = _messages(subject, payload, count)
    if subject != _FROM_STDIN:
        # Before anything is bound or waited for.
        oz.validate_subject(_as_bytes(subject), dialect)
    endpoints = list(bind) if bind or connect else [DEFAULT_ENDPOINT]
    with oz.Publisher(
        endpoints or None, list(connect) or None, dialect=dialect, on_full="block"
    ) as publisher:
        say(ctx, _ready_line(publisher, endpoints, connect))
        patience = _Patience(publisher, wait)
        if subject != _FROM_STDIN and not patience.wait_for(_as_bytes(subject)):
            _give_up(
                ctx, f"nobody subscribed to {printable(subject)} within {wait:g} s; nothing was published"
            )
        _publish_all(publisher, patience, _paced(messages, interval))
        _report_unwanted(ctx, publisher)


def _messages(subject: str, payload: str | None, count: int | None) -> Iterator[Message]:
    if payload is None:
        if count is not None:
            raise click.UsageError("--count repeats a PAYLOAD, and there is none")
        lines = _stdin_lines()
        return _split(lines) if subject == _FROM_STDIN else ((_as_bytes(subject), line) for line in lines)
    if subject == _FROM_STDIN:
        raise click.UsageError("with - as the SUBJECT, subjects and payloads come from stdin")
    return repeat((_as_bytes(subject), _as_bytes(payload)), count or 1)


def _stdin_lines() -> Iterator[bytes]:
    return (line.removesuffix(b"\n") for line in click.get_binary_stream("stdin"))


def _split(lines: Iterable[bytes]) -> Iterator[Message]:
    for line in lines:
        subject, _, payload = line.partition(b" ")
        if line.strip():
            yield subject, payload


def _paced(messages: Iterator[Message], interval: float) -> Iterator[Message]:
    # Waits between two messages, not after the last.
    for first in messages:
        yield first
        break
    for message in messages:
        time.sleep(interval)
        yield message


def _publish_all(publisher: oz.Publisher, patience: _Patience, messages: Iterable[Message]) -> None:
    for subject, payload in messages:
        patience.wait_for(subject)
        publisher.publish(subject, payload)


class _Patience:
    """Waits for subscribers of each new subject, but no longer than a limit in all.

    A subscriber's patterns arrive one after the other: that one of them is there does not mean that all are.
    """

    def __init__(self, publisher: oz.Publisher, limit: float) -> None:
        self._publisher = publisher
        self._left = limit
        self._wanted: set[bytes] = set()

    def wait_for(self, subject: bytes) -> bool:
        """Return whether somebody subscribed to the subject before patience ran out."""
        if subject in self._wanted or self._left < 0:
            return subject in self._wanted
        started = time.monotonic()
        try:
            self._publisher.wait_for_subscribers(1, subject=subject, timeout=self._left)
        except oz.Timeout:
            self._left = -1  # spent; 0 would still look once for each subject
            return False
        self._left = max(0.0, self._left - (time.monotonic() - started))
        self._wanted.add(subject)
        return True


def _ready_line(publisher: oz.Publisher, bind: Iterable[str], connect: Iterable[str]) -> str:
    # The publisher knows the port that it was given for `:*`.
    bound = [publisher.endpoint] if bind else []
    places = chain((f"bound to {one}" for one in bound), (f"connected to {one}" for one in connect))
    return f"ready, {', '.join(places)}"


def _report_unwanted(ctx: click.Context, publisher: oz.Publisher) -> None:
    stats = publisher.stats
    if stats.published and not stats.sent:
        _give_up(ctx, "nobody subscribed to any of the subjects")
    if stats.unwanted:
        say(ctx, f"{stats.unwanted} of {stats.published} messages had no subscriber")


def _give_up(ctx: click.Context, line: str) -> None:
    say(ctx, line)
    ctx.exit(NOBODY)


def _as_bytes(argument: str) -> bytes:
    return argument.encode(errors="surrogateescape")
