"""`oz sub`: print what arrives."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count as counting
from typing import Any

import click

import oz
from oz.cli.exits import TIMED_OUT, say
from oz.cli.log_lines import log_in_lines
from oz.cli.options import (
    DEFAULT_ENDPOINT,
    check_routed,
    dialect_option,
    endpoint_options,
    parse_all,
    ready_line,
    routed_options,
)
from oz.cli.output import json_field, printable, reader_gone, write_line

READY_SECONDS = 1.0
"""How long publishers may take to answer before that is said."""

READER_CHECK = 0.5
"""Seconds between two looks at whether anybody still reads stdout."""

_HELP = f"""Print the messages whose subject matches one of the PATTERNs, one line each.

A line is the subject, a space and the payload, in which line breaks, other control characters and bytes that
are not UTF-8 are shown as \\n or \\xff. --json is exact: one object a line, with "subject" and "payload", or
"payload_base64" where the payload is not UTF-8; "more" has the further frames of a message with several.

Without --bind and --connect it connects to {DEFAULT_ENDPOINT}, where `oz pub` publishes; either may be
started first. Runs until Ctrl-C, --count or --timeout.

With --filtering publisher an oz publisher sends only what matches, and what is lost nevertheless is said on
stderr, to the message. It needs oz at the other end. --group, --keep, --last-value and --headers imply it.

\b
Examples:
  oz sub 'time.*.east'
  oz sub 'rv:Foo.*' 'regex:^order\\.(new|fill)\\..*' --connect tcp://192.0.2.7:5750
  oz sub 'md.>' --json --count 1 --timeout 5 | jq -r .payload
  oz sub '*.error' --filtering publisher
  oz sub 'job.>' --group workers
"""


@click.command(help=_HELP, short_help="Print the messages that match a pattern.")
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@dialect_option("patterns that name none")
@endpoint_options(default="--connect")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Exit after so many messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=math.inf,
    metavar="SECONDS",
    help="Exit 4 when no message comes for so long.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object a line.")
@routed_options
@click.option(
    "--headers", "with_headers", is_flag=True, help="Write the headers too: as JSON, after the subject."
)
@click.pass_context
def sub(
    ctx: click.Context,
    /,
    patterns: tuple[str, ...],
    dialect: str,
    bind: list[str],
    connect: list[str],
    count: int | None,
    timeout: float,
    as_json: bool,
    with_headers: bool,
    **routed: Any,
) -> None:
    """Print messages; the text of the help is `_HELP`."""
    compiled = parse_all(patterns, dialect)
    terms = check_routed(routed, is_needed=with_headers)
    form = partial(_as_json if as_json else _as_text, with_headers=with_headers)
    if not (bind or connect):
        connect = [DEFAULT_ENDPOINT]
    is_routed = terms is not None
    options: dict[str, Any] = (
        {"filtering": "publisher", "on_gap": partial(_say_gap, ctx)} if is_routed else {}
    )
    with (
        log_in_lines(ctx, "warning: "),
        oz.Subscriber(connect, bind, dialect=dialect, **options) as subscriber,
    ):
        subscriber.subscribe(compiled, **(terms or {}))
        ready = _Ready(ctx, subscriber, ready_line(subscriber, bind, connect), is_known=not is_routed)
        ready.await_publishers(min(timeout, READY_SECONDS), len(bind) + len(connect))
        try:
            _print_messages(ready, count, timeout, form)
        except oz.Timeout:
            say(ctx, f"no message for {timeout:g} s")
            ctx.exit(TIMED_OUT)


def _say_gap(ctx: click.Context, gap: oz.Gap) -> None:
    publisher = f"publisher {gap.origin.hex()[:8]}…"
    if gap.count is None:
        say(ctx, f"messages of {publisher} were lost, nobody knows how many")
    elif gap.count == 1:
        say(ctx, f"1 message of {publisher} was lost")
    else:
        say(ctx, f"{gap.count} messages of {publisher} were lost")


class _Ready:
    """Says that the subscriber is ready, as soon as it is."""

    def __init__(self, ctx: click.Context, subscriber: oz.Subscriber, line: str, *, is_known: bool) -> None:
        self.subscriber = subscriber
        self._ctx, self._line, self._is_said = ctx, line, is_known
        if is_known:
            say(ctx, line)

    def await_publishers(self, seconds: float, endpoints: int) -> None:
        """Wait so long for publishers to answer, and say when they have not."""
        self.look(seconds)
        if not self._is_said:
            who = "no publisher has" if endpoints == 1 else "not every publisher has"
            say(self._ctx, f"{who} answered yet; waiting")

    def look(self, seconds: float = 0) -> None:
        """Say that it is ready, if it is by now and that was not said before."""
        if not self._is_said:
            with suppress(oz.Timeout):
                self.subscriber.wait_ready(seconds)
                self._is_said = True
                say(self._ctx, self._line)


def _print_messages(
    ready: _Ready, count: int | None, timeout: float, form: Callable[[oz.Message], str]
) -> None:
    for number in counting(1):
        message = _receive(ready, timeout)
        write_line(form(message))
        if number == count:
            return


def _receive(ready: _Ready, timeout: float) -> oz.Message:
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        ready.look()
        try:
            return ready.subscriber.receive(timeout=max(0.0, min(left, READER_CHECK)))
        except oz.Timeout:
            # `oz sub … | head -1` would otherwise sit here until the next message.
            if reader_gone():
                raise BrokenPipeError from None
            if left <= READER_CHECK:
                raise


def _as_text(message: oz.Message, *, with_headers: bool) -> str:
    parts = [printable(part) for part in (message.subject, *message.frames[1:])]
    if with_headers:
        parts.insert(1, printable(json.dumps(_headers(message), ensure_ascii=False)))
    return " ".join(parts)


def _headers(message: oz.Message) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in message.headers.items():
        fields |= json_field(name, value) if isinstance(value, (str, bytes)) else {name: value}
    return fields


def _as_json(message: oz.Message, *, with_headers: bool) -> str:
    fields: dict[str, Any] = json_field("subject", message.subject) | json_field("payload", message.payload)
    if len(message.frames) > 2:
        fields["more"] = [json_field("payload", frame) for frame in message.frames[2:]]
    if with_headers:
        fields["headers"] = _headers(message)
    return json.dumps(fields, ensure_ascii=False)
