"""`oz pub`: publish messages without loss."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from math import inf
from typing import Any, NamedTuple

import click

import oz
from oz.cli.exits import NOBODY, USAGE, closed_when_sent, describe, exit_code
from oz.cli.joining import bus_options, is_on_bus, joined, print_ready
from oz.cli.json_lines import read_json_line
from oz.cli.options import (
    DEFAULT_ENDPOINT,
    Number,
    Whole,
    dialect_option,
    endpoint_options,
    ready_line,
    security_option,
)
from oz.cli.output import print_status, print_stderr, quiet_option
from oz.cli.payloads import BadPayload, PayloadForm, headers_option, payload_option
from oz.cli.rights import check_right
from oz.configuration import resolve_limits
from oz.escaping import printable, raw_text
from oz.multicast.endpoints import is_multicast

_FROM_STDIN = "-"
_MANY = 10_000

_HELP = f"""Publish PAYLOAD on SUBJECT.

Without a PAYLOAD, each line of stdin is a payload. With - as the SUBJECT, each line of stdin is a subject, a
space and a payload, in the format of `oz sub`, and blank lines are skipped. With --json each line is an object in the
format of `oz sub --json`. The command ends at the first wrong line, and prints the number of the line.

The command waits --wait seconds for a subscriber of the subject, and exits 3 if no subscriber comes. It waits for a
slow subscriber, so that no message is dropped.

Over multicast, as with --bind 'epgm://eth0;239.192.1.1:5555', the command does not wait, because a multicast publisher
does not know its subscribers.

Without --bind and --connect it binds {DEFAULT_ENDPOINT}, to which `oz sub` connects. `oz pub` and `oz sub` may be
started in any order. With --bus the command joins a bus as a node, and publishes to the nodes of the bus.

\b
Examples:
  oz pub time.new.east 12:00
  oz pub sensor.1.temp 21.5 --count 10 --interval 1
  tail -f app.log | oz pub log.web1
  printf '%s\\n' 'a.b one' 'a.c two' | oz pub - --connect tcp://192.0.2.7:5750
  oz pub order.new 42 --header user=ann --header trace=7f
  oz pub order.new '{{"size": 5}}' --payload json --bus trading
"""


class OutgoingMessage(NamedTuple):
    """Message to publish, and the number of its line on stdin; 0 if the message is not from stdin."""

    subject: bytes
    payload: bytes
    line: int = 0


@click.command(help=_HELP)
@click.argument("subject")
@click.argument("payload", required=False)
@dialect_option("the subject")
@endpoint_options(default="--bind")
@click.option("-n", "--count", type=Whole(1), metavar="N", help="Publish PAYLOAD N times.  [default: 1]")
@click.option(
    "--interval",
    type=Number(),
    default=0.0,
    metavar="SECONDS",
    help="Time from one message to the next.",
)
@click.option(
    "--wait",
    type=Number(),
    default=2.0,
    metavar="SECONDS",
    help="Total time to wait for subscribers.  [default: 2]",
)
@headers_option(
    "A header of every message; may be repeated. Plain ZeroMQ subscribers do not receive headers."
)
@click.option("-k", "--key", metavar="TEXT", help="Key for --policy sticky, in place of the subject.")
@click.option(
    "--last-value",
    is_flag=True,
    help="While the command runs, keep the newest message of each subject for subscribers with `--last-value`.",
)
@click.option(
    "-j", "--json", "as_json", is_flag=True, help="Read the output of `oz sub --json`, with - as the SUBJECT."
)
@bus_options
@payload_option(" With --bus.")
@security_option
@quiet_option
@click.pass_context
def pub(
    ctx: click.Context,
    /,
    subject: str,
    payload: str | None,
    dialect: str,
    count: int | None,
    interval: float,
    wait: float,
    headers: dict[str, Any],
    key: str | None,
    last_value: bool,
    as_json: bool,
    form: str,
    **given: Any,
) -> None:
    """Publish messages; `_HELP` is the text of `--help`."""
    is_bus = is_on_bus(given)
    if is_bus:
        PayloadForm(form).read(raw_text(payload or "null"))
    elif form != "text":
        raise click.UsageError("--payload needs --bus; without it payloads are bytes")
    if as_json and (is_bus or subject != _FROM_STDIN):
        raise click.UsageError("--json needs - as the SUBJECT, and no --bus")
    messages = _json_lines(payload) if as_json else _messages(subject, payload, count)
    if subject != _FROM_STDIN:
        # A wrong subject is rejected before the command binds or waits.
        oz.validate_subject(raw_text(subject), dialect)
    payloads = PayloadForm(form)
    extras: dict[str, Any] = {"headers": headers} if headers else {}
    if key is not None:
        extras["key"] = raw_text(key)
    is_known = not any(map(is_multicast, (*given["bind"], *given["connect"])))
    published = unwanted = 0
    with _opened(ctx, given, payloads, dialect, last_value=last_value) as publisher:
        if subject != _FROM_STDIN:
            check_right(publisher, "publish", raw_text(subject))
        recipients = _Recipients(publisher, wait, is_known=is_known)
        if subject != _FROM_STDIN and not recipients.wait_for(raw_text(subject)):
            print_stderr(
                ctx,
                f"no subscriber of {printable(subject)} within {wait:g} s; nothing was published. Give a longer --wait",
            )
            ctx.exit(NOBODY)
        for topic, body, line in messages:
            if published and interval:
                time.sleep(interval)
            with _named_line(ctx, line):
                if as_json:
                    topic, body, own = read_json_line(body)
                    extras["headers"] = {**headers, **own} or None
                unwanted += not recipients.wait_for(topic)
                publisher.publish(topic, payloads.read(body) if is_bus else body, **extras)
            published += 1
    # With `--last-value`, messages without a subscriber are no error: later subscribers get the newest messages.
    if unwanted and not last_value:
        print_stderr(ctx, f"{unwanted} of {published} messages had no subscriber: check their subjects")
        if unwanted == published:
            ctx.exit(NOBODY)


@contextmanager
def _named_line(ctx: click.Context, line: int) -> Iterator[None]:
    """Report an error of the `with` block with the number of the line on stdin, and exit."""
    try:
        yield
    except (oz.SubjectError, oz.ProtocolError, oz.PermissionDenied, BadPayload) as error:
        if not line:
            raise
        print_stderr(ctx, f"line {line}: {describe(error)}")
        ctx.exit(USAGE if isinstance(error, BadPayload) else exit_code(error))


@contextmanager
def _opened(
    ctx: click.Context, given: dict[str, Any], payloads: PayloadForm, dialect: str, *, last_value: bool
) -> Iterator[oz.Publisher | oz.Node]:
    arguments: dict[str, Any] = {"dialect": dialect, "on_full": "block", "last_value": last_value}
    if is_on_bus(given):
        options = {"echo": False, "send_timeout": inf}
        with joined(ctx, given, node_options=options, codec=payloads.codec, **arguments) as node:
            print_ready(ctx, node)
            with closed_when_sent(ctx, node):
                yield node
        return
    bind, connect = given["bind"], given["connect"]
    if not (bind or connect):
        bind = [DEFAULT_ENDPOINT]
    publisher = oz.Publisher(
        bind,
        connect,
        security=given["security"],
        options=oz.Options(send_timeout=inf, limits=resolve_limits()),
        **arguments,
    )
    with closed_when_sent(ctx, publisher):
        print_status(ctx, ready_line(publisher.endpoint, bind, connect))
        yield publisher


def _messages(subject: str, payload: str | None, count: int | None) -> Iterator[OutgoingMessage]:
    if payload is None:
        if count is not None:
            raise click.UsageError("--count needs a PAYLOAD")
        lines = _stdin_lines()
        if subject == _FROM_STDIN:
            return _split(lines)
        return (OutgoingMessage(raw_text(subject), line) for line in lines)
    if subject == _FROM_STDIN:
        raise click.UsageError(
            "with - as the SUBJECT, subjects and payloads come from stdin: leave out PAYLOAD"
        )
    return repeat(OutgoingMessage(raw_text(subject), raw_text(payload)), count or 1)


def _json_lines(payload: str | None) -> Iterator[OutgoingMessage]:
    if payload is not None:
        raise click.UsageError("with --json, payloads come from stdin: leave out PAYLOAD")
    return (
        OutgoingMessage(b"", line, number) for number, line in enumerate(_stdin_lines(), 1) if line.strip()
    )


def _stdin_lines() -> Iterator[bytes]:
    return (line.removesuffix(b"\n") for line in sys.stdin.buffer)


def _split(lines: Iterable[bytes]) -> Iterator[OutgoingMessage]:
    for number, line in enumerate(lines, 1):
        subject, _, payload = line.partition(b" ")
        if line.strip():
            yield OutgoingMessage(subject, payload, number)


class _Recipients:
    """Wait for a subscriber of each new subject. All waits together have one time limit.

    The patterns of a subscriber arrive one after the other. Therefore the subscribers of a subject may still be missing
    when another subject has its subscribers. A multicast publisher does not know its subscribers, and does not wait.
    """

    def __init__(self, publisher: oz.Publisher | oz.Node, limit: float, *, is_known: bool) -> None:
        self._publisher = publisher
        self._is_known = is_known
        self._left = limit
        self._seen: set[bytes] = set()

    def wait_for(self, subject: bytes) -> bool:
        """Return whether the subject has a subscriber. If the subject is new, wait for a subscriber first."""
        if not self._is_known:
            return True
        if self._left > 0 and subject not in self._seen:
            self._seen.add(subject)
            self._wait(subject)
        return self._publisher.has_subscribers(subject)

    def _wait(self, subject: bytes) -> None:
        started = time.monotonic()
        try:
            self._publisher.wait_for_subscribers(subject, timeout=self._left)
        except oz.Timeout:
            self._left = 0
        # After `_MANY` subjects, all subscribers had time to connect. The number also bounds the memory of the set.
        self._left = 0 if len(self._seen) > _MANY else self._left - (time.monotonic() - started)
