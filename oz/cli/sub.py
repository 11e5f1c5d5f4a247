"""`oz sub`: print what arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import count as counting
from math import inf
from typing import Any

import click

import oz
from oz.cli.exits import TIMED_OUT
from oz.cli.joining import bus_options, dialect_on_bus, is_on_bus, is_ready, joined
from oz.cli.joining import ready_line as node_ready_line
from oz.cli.on_bus import BusSubscriber, Shown
from oz.cli.options import (
    DEFAULT_ENDPOINT,
    MOST_SECONDS,
    ROUTED,
    Number,
    Whole,
    check_routed,
    dialect_option,
    endpoint_options,
    parse_all,
    ready_line,
    routed_options,
    security_option,
    socket_refused,
)
from oz.cli.output import json_field, log_in_lines, say, write_line
from oz.cli.payloads import PayloadForm, field, headers_as_json, payload_option
from oz.cli.rights import check_subscribed, of_applications
from oz.cli.waiting import Waiting, listening, reporting_trouble
from oz.escaping import json_text, printable

READY_SECONDS = 1.0
"""How long publishers may take to answer before that is said."""

_LATER = 0.001
"""Seconds after a time by which it is over for sure."""

_HELP = f"""Print the messages whose subject matches one of the PATTERNs, one line each.

A line is the subject, a space and the payload. Line breaks, other control characters and bytes that are not
UTF-8 are shown as \\n or \\xff. --json is exact: one object a line, with "subject" and "payload", or
"payload_base64" where the payload is not UTF-8. "more" has the further frames of a message with several.

Without --bind and --connect it connects to {DEFAULT_ENDPOINT}, where `oz pub` publishes; either may be
started first. Runs until Ctrl-C, --count or --timeout.

With --filtering publisher an oz publisher sends only what matches, and what is lost nevertheless is said on
stderr, to the message. It needs oz at the other end. --group, --overflow, --last-value and --headers imply
it.

With --bus it joins a bus as a node, and prints what any node there publishes. Payloads are then values: text
is printed as it is, and anything else as JSON. What is lost is said on stderr.

\b
Examples:
  oz sub 'time.*.east'
  oz sub 'rv:Foo.*' 'regex:^order\\.(new|fill)\\..*' --connect tcp://192.0.2.7:5750
  oz sub 'md.>' --json --count 1 --timeout 5 | jq -r .payload
  oz sub '*.error' --filtering publisher
  oz sub 'job.>' --group workers
  oz sub 'order.*.new' --bus trading
"""


@click.command(help=_HELP, short_help="Print the messages that match a pattern.")
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@dialect_option("patterns that name none")
@endpoint_options(default="--connect")
@click.option("--count", type=Whole(1), metavar="N", help="Exit after so many messages.")
@click.option(
    "--timeout",
    type=Number(),
    default=MOST_SECONDS,
    metavar="SECONDS",
    help="Exit 4 when no message comes for so long.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object a line.")
@routed_options
@click.option(
    "--headers", "with_headers", is_flag=True, help="Write the headers too: as JSON, after the subject."
)
@bus_options
@payload_option(" With --bus.")
@security_option
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
    form: str,
    security: oz.Security | None,
    **given: Any,
) -> None:
    """Print messages; the text of the help is `_HELP`."""
    is_bus = is_on_bus(given)
    if is_bus:
        dialect = dialect_on_bus(ctx, dialect)
    elif form != "text":
        raise click.UsageError("--payload is for --bus; elsewhere payloads are bytes")
    compiled = parse_all(patterns, dialect)
    routed = {name: given.pop(name) for name in ROUTED}
    asked = check_routed(routed, is_needed=with_headers or is_bus)
    # What is denied is told before anything is bound or waited for.
    check_subscribed(
        security,
        of_applications(compiled) if is_bus else compiled,
        is_routed=is_bus or asked is not None,
        group=routed["group"] or "",
    )
    shown = partial(_as_json if as_json else _as_text, with_headers=with_headers)
    opened = (
        _on_bus(
            ctx,
            compiled,
            given | {"bind": bind, "connect": connect, "security": security},
            PayloadForm(form),
            dialect,
            asked or {},
        )
        if is_bus
        else _on_sockets(ctx, compiled, (bind, connect), dialect, asked, timeout, security)
    )
    with listening() as waiting, opened as ready, ready.heard_by(waiting):
        try:
            _print_messages(ready, waiting, count, timeout, shown)
        except oz.Timeout:
            say(ctx, f"no message for {timeout:g} s")
            ctx.exit(TIMED_OUT)


@contextmanager
def _on_bus(
    ctx: click.Context,
    patterns: list[oz.Pattern],
    given: dict[str, Any],
    form: PayloadForm,
    dialect: str,
    asked: dict[str, Any],
) -> Iterator[_Ready]:
    if given["connect"]:
        raise click.UsageError("--connect does not go with --bus: a node finds its peers; --peers names one")
    with joined(ctx, given, dialect=dialect, codec=form.codec) as node:
        subscriber = BusSubscriber(ctx, node, form)
        subscriber.subscribe(patterns, asked)
        line = node_ready_line(node, is_whole=is_ready(node))
        yield _Ready(ctx, subscriber, line, is_known=True)


@contextmanager
def _on_sockets(
    ctx: click.Context,
    patterns: list[oz.Pattern],
    ends: tuple[list[str], list[str]],
    dialect: str,
    asked: dict[str, Any] | None,
    timeout: float,
    security: oz.Security | None,
) -> Iterator[_Ready]:
    bind, connect = ends
    if not (bind or connect):
        connect = [DEFAULT_ENDPOINT]
    is_routed = asked is not None
    options: dict[str, Any] = (
        {"filtering": "publisher", "on_gap": partial(_say_gap, ctx)} if is_routed else {}
    )
    with socket_refused():
        made = oz.Subscriber(connect, bind, dialect=dialect, security=security, **options)
    with log_in_lines(ctx, "warning: "), made as subscriber:
        subscriber.subscribe(patterns, **(asked or {}))
        line = ready_line(subscriber, bind, connect, have_answered=is_routed)
        ready = _Ready(ctx, subscriber, line, is_known=not is_routed)
        # Where publishers answer it is said whether they have.
        asked_of = () if is_routed else connect
        with reporting_trouble(
            asked_of, READY_SECONDS, partial(say, ctx), has_keys=security is not None
        ) as ready.something_has_come:
            ready.await_publishers(min(timeout, READY_SECONDS), len(bind) + len(connect))
            yield ready


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

    def __init__(
        self, ctx: click.Context, subscriber: oz.Subscriber | BusSubscriber, line: str, *, is_known: bool
    ) -> None:
        self.subscriber = subscriber
        self._ctx, self._line, self._is_said = ctx, line, is_known
        self.something_has_come: Callable[[], object] = bool
        if is_known:
            say(ctx, line)

    def await_publishers(self, seconds: float, endpoints: int) -> None:
        """Wait so long for publishers to answer, and say when they have not."""
        self.look(seconds)
        if not self._is_said:
            who = "no publisher has" if endpoints == 1 else "not every publisher has"
            say(self._ctx, f"{who} answered yet; waiting")

    def heard_by(self, waiting: Waiting) -> AbstractContextManager[None]:
        """End a wait when something has come, in a `with` block."""
        if isinstance(self.subscriber, BusSubscriber):
            return self.subscriber.heard_by(waiting)
        waiting.add(self.subscriber)
        return nullcontext()

    def next_deadline(self) -> float:
        """Return when to receive though nothing comes, in monotonic seconds; infinite for never."""
        if isinstance(self.subscriber, BusSubscriber):
            return inf
        due = self.subscriber.next_deadline()
        return inf if due is None else due + _LATER

    def look(self, seconds: float = 0) -> None:
        """Say that it is ready, if it is by now and that was not said before."""
        if not self._is_said:
            with suppress(oz.Timeout):
                self.subscriber.wait_ready(seconds)
                self._is_said = True
                say(self._ctx, self._line)


def _print_messages(
    ready: _Ready,
    waiting: Waiting,
    count: int | None,
    timeout: float,
    form: Callable[[oz.Message | Shown], str],
) -> None:
    for number in counting(1):
        message = _receive(ready, waiting, timeout)
        write_line(form(message))
        if number == count:
            return


def _receive(ready: _Ready, waiting: Waiting, timeout: float) -> oz.Message | Shown:
    deadline = time.monotonic() + timeout
    while True:
        is_over = time.monotonic() >= deadline
        ready.look()
        try:
            message = ready.subscriber.receive(timeout=0)
            ready.something_has_come()
            return message
        except oz.Timeout:
            if is_over:
                raise
        waiting.wait(min(deadline, ready.next_deadline()))


def _as_text(message: oz.Message | Shown, *, with_headers: bool) -> str:
    parts = [printable(message.subject), *map(printable, message.frames[1:])]
    if with_headers:
        parts.insert(1, json_text(headers_as_json(message.headers)))
    return " ".join(parts)


def _as_json(message: oz.Message | Shown, *, with_headers: bool) -> str:
    fields: dict[str, Any] = json_field("subject", message.subject) | field("payload", message.payload)
    if len(message.frames) > 2:
        fields["more"] = [json_field("payload", frame) for frame in message.frames[2:]]
    if with_headers:
        fields["headers"] = headers_as_json(message.headers)
    return json_text(fields)
