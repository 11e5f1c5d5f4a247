"""`oz sub`: print what arrives."""

from __future__ import annotations

import json
import math
import time
from itertools import count as counting
from typing import Any

import click

import oz
from oz.cli.exits import TIMED_OUT, say
from oz.cli.options import DEFAULT_ENDPOINT, dialect_option, endpoint_options, parse_all, ready_line
from oz.cli.output import json_field, printable, reader_gone, write_line

READER_CHECK = 0.5
"""Seconds between two looks at whether anybody still reads stdout."""

_HELP = f"""Print the messages whose subject matches one of the PATTERNs, one line each.

A line is the subject, a space and the payload, in which line breaks, other control characters and bytes that
are not UTF-8 are shown as \\n or \\xff. --json is exact: one object a line, with "subject" and "payload", or
"payload_base64" where the payload is not UTF-8; "more" has the further frames of a message with several.

Without --bind and --connect it connects to {DEFAULT_ENDPOINT}, where `oz pub` publishes; either may be
started first. Runs until Ctrl-C, --count or --timeout.

\b
Examples:
  oz sub 'time.*.east'
  oz sub 'rv:Foo.*' 'regex:^order\\.(new|fill)\\..*' --connect tcp://192.0.2.7:5750
  oz sub 'md.>' --json --count 1 --timeout 5 | jq -r .payload
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
@click.pass_context
def sub(
    ctx: click.Context,
    patterns: tuple[str, ...],
    dialect: str,
    bind: list[str],
    connect: list[str],
    count: int | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Print messages; the text of the help is `_HELP`."""
    compiled = parse_all(patterns, dialect)
    if not (bind or connect):
        connect = [DEFAULT_ENDPOINT]
    with oz.Subscriber(connect, bind, dialect=dialect) as subscriber:
        subscriber.subscribe(compiled)
        say(ctx, ready_line(subscriber, bind, connect))
        try:
            _print_messages(subscriber, count, timeout, as_json)
        except oz.Timeout:
            say(ctx, f"no message for {timeout:g} s")
            ctx.exit(TIMED_OUT)


def _print_messages(subscriber: oz.Subscriber, count: int | None, timeout: float, as_json: bool) -> None:
    for number in counting(1):
        message = _receive(subscriber, timeout)
        write_line(_as_json(message) if as_json else _as_text(message))
        if number == count:
            return


def _receive(subscriber: oz.Subscriber, timeout: float) -> oz.Message:
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        try:
            return subscriber.receive(timeout=max(0.0, min(left, READER_CHECK)))
        except oz.Timeout:
            # `oz sub … | head -1` would otherwise sit here until the next message.
            if reader_gone():
                raise BrokenPipeError from None
            if left <= READER_CHECK:
                raise


def _as_text(message: oz.Message) -> str:
    return " ".join(printable(part) for part in (message.subject, *message.frames[1:]))


def _as_json(message: oz.Message) -> str:
    fields: dict[str, Any] = json_field("subject", message.subject) | json_field("payload", message.payload)
    if len(message.frames) > 2:
        fields["more"] = [json_field("payload", frame) for frame in message.frames[2:]]
    return json.dumps(fields, ensure_ascii=False)
