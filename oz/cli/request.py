"""`oz request`: send a request, and print the replies."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import click

import oz
from oz.cli.exits import NOBODY, TIMED_OUT
from oz.cli.joining import joined, joining_options, print_ready
from oz.cli.options import Number, Whole, dialect_option
from oz.cli.output import json_option, print_stderr, quiet_option, write_line
from oz.cli.payloads import PayloadForm, field, headers_as_json, headers_option, payload_option, text_or_bytes
from oz.escaping import json_text, printable, raw_text

_FROM_STDIN = "-"

_HELP = """Send a request on SUBJECT, and print the reply.

The command joins a bus as a node. Without a PAYLOAD the payload is empty. With - the payload is all of stdin. A reply
is printed as one line, in which line breaks, other control characters and bytes that are not UTF-8 are written as \\n
or \\xff. --raw prints the reply unchanged. --json prints one object in each line, with "payload", "seconds" since the
request, and "headers" if the reply has headers.

Without a responder it exits 3, at once or after --wait seconds. It exits 4 if no reply comes within --timeout.
If the handler of the responder raises an error, the command prints the reason and exits 1.

With --count N the command waits for N replies. If fewer replies come in time, it prints them and exits 0, or 1 if a
responder failed.

\b
Examples:
  oz request price.EURUSD
  oz request risk.limit '{"size": 5}' --payload json --timeout 5
  oz request who.is.there --count 100 --json
  oz request image.resize - --payload bytes --raw < big.png > small.png
"""


@click.command(help=_HELP, short_help="Send a request, and print the reply.")
@click.argument("subject")
@click.argument("payload", required=False, default="")
@click.option("-t", "--timeout", type=Number(), default=2.0, metavar="SECONDS",
              help="Maximum time from the request to the replies.  [default: 2]")  # fmt: skip
@click.option("--wait", type=Number(), default=0.0, metavar="SECONDS",
              help="Time to wait for a responder.  [default: 0]")  # fmt: skip
@click.option("-n", "--count", type=Whole(1), metavar="N", help="Wait for N replies.")
@json_option("Write one JSON object a line.")
@click.option("-r", "--raw", is_flag=True, help="Print replies unchanged, without a line break.")
@headers_option("A header of the request; may be repeated.")
@dialect_option("the subject")
@payload_option()
@joining_options
@quiet_option
@click.pass_context
def request(
    ctx: click.Context,
    /,
    subject: str,
    payload: str,
    timeout: float,
    wait: float,
    count: int | None,
    as_json: bool,
    raw: bool,
    headers: dict[str, Any],
    dialect: str,
    form: str,
    **joining: Any,
) -> None:
    """Send a request; `_HELP` is the text of `--help`."""
    if as_json and raw:
        raise click.UsageError("give --json or --raw, not both")
    named = text_or_bytes(raw_text(subject))
    # The subject and the payload are checked before the command joins the bus.
    oz.validate_subject(named, dialect)
    payloads = PayloadForm(form)
    asked = payloads.read(_written(payload))
    with joined(ctx, joining, node_options={"echo": False}, dialect=dialect, codec=payloads.codec) as node:
        print_ready(ctx, node)
        if wait:
            with suppress(oz.Timeout):
                node.wait_for_subscribers(raw_text(subject), timeout=wait)
        try:
            began = time.monotonic()
            show = partial(_as_json, began) if as_json else _as_is(payloads, raw=raw)
            if count is None:
                show(node.request(named, asked, timeout=timeout, headers=headers or None))
                return
            replies = node.request_many(named, asked, timeout=timeout, limit=count, headers=headers or None)
            has_reply = False
            for reply in replies:
                show(reply)
                has_reply = True
            if not has_reply:
                raise oz.Timeout
        except oz.NoResponders:
            print_stderr(
                ctx,
                f"no node on bus {printable(node.bus)} has a subscription for {printable(named)}: check the subject, "
                "or wait for one with --wait",
            )
            ctx.exit(NOBODY)
        except oz.Timeout:
            hint = "; responders do not answer a denied request: see their log and stats.denied"
            print_stderr(
                ctx,
                f"no reply to {printable(named)} within {timeout:g} s{hint if joining['security'] else ''}",
            )
            ctx.exit(TIMED_OUT)


def _written(payload: str) -> bytes:
    if payload == _FROM_STDIN:
        return sys.stdin.buffer.read()
    return raw_text(payload)


def _as_is(payloads: PayloadForm, *, raw: bool) -> Callable[[oz.Message], None]:
    def show(answer: oz.Message) -> None:
        written = payloads.write(answer.payload)
        if raw:
            sys.stdout.buffer.write(written)
            sys.stdout.buffer.flush()
        else:
            write_line(printable(written))

    return show


def _as_json(began: float, answer: oz.Message) -> None:
    fields = field("payload", answer.payload) | {"seconds": round(time.monotonic() - began, 6)}
    if answer.headers:
        fields["headers"] = headers_as_json(answer.headers)
    write_line(json_text(fields))
