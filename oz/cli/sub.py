"""`oz sub`: print messages."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count as counting
from math import inf
from string import Formatter
from typing import Any, NamedTuple

import click

import oz
from oz.cli.exits import TIMED_OUT
from oz.cli.joining import bus_options, is_on_bus, joined, print_ready, without_printed_hints
from oz.cli.options import (
    DEFAULT_ENDPOINT,
    MAX_SECONDS,
    SOCKET_READY_SECONDS,
    Number,
    Whole,
    delivery_arguments,
    delivery_options,
    dialect_option,
    endpoint_options,
    filtering_option,
    parse_all,
    ready_line,
    security_option,
)
from oz.cli.output import (
    json_field,
    json_option,
    log_in_lines,
    print_status,
    print_stderr,
    quiet_option,
    write_line,
)
from oz.cli.payloads import PayloadForm, field, headers_as_json, payload_option
from oz.cli.rights import check_subscribed, of_applications
from oz.cli.waiting import Waiting, listening
from oz.configuration import resolve_limits
from oz.escaping import json_text, printable

SERVICE_SECONDS = 1.0
"""Maximum seconds between two polls of the subscriber, because it answers its publishers only when it is polled."""

_HELP = """Print the messages whose subject matches one of the PATTERNs, one line each.

A line is the subject, a space and the payload. Line breaks, other control characters and bytes that are not UTF-8 are
printed as \\n or \\xff. --format sets the text of a line with the fields {subject}, {payload}, {headers} and {time}.
--json prints the exact subject and payload, as one object in each line. The object has "subject" and "payload", or
"payload_base64" if the payload is not UTF-8. "more" has the payload frames after the first.

Without --bind and --connect it connects to %s, where `oz pub` binds. `oz sub` and `oz pub` may be
started in any order. The command ends at Ctrl-C, after --count messages, or at --timeout.

An oz publisher sends only the messages that match, and the command reports lost messages on stderr. Messages of other
publishers are filtered by prefix, and then by pattern. --group, --overflow, --last-value and --filtering publisher need
an oz publisher to which the command connects.

With --bus it joins a bus as a node, and prints the messages of the nodes. Payloads are then values. Text is printed
unchanged, and other values are printed as JSON.

\b
Examples:
  oz sub 'time.*.east'
  oz sub 'rv:Foo.*' 'regex:^order\\.(new|fill)\\..*' --connect tcp://192.0.2.7:5750
  oz sub 'md.>' --json --count 1 --timeout 5 | jq -r .payload
  oz sub 'job.>' --group workers
  oz sub 'order.*.new' --bus trading
  oz sub 'md.>' --format '{time} {subject}\\t{payload}'
""".replace("%s", DEFAULT_ENDPOINT)


_ESCAPED = {"\\t": "\t", "\\n": "\n", "\\0": "\0", "\\\\": "\\"}
_ESCAPES = re.compile(r"\\[tn0\\]")
_FIELDS = ("subject", "payload", "headers", "time")


def _read_template(_ctx: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Check the fields of a template, and replace its backslash escapes."""
    if text is None:
        return None
    try:
        named = {name for _, name, spec, conversion in Formatter().parse(text) if name is not None}
        if unknown := named.difference(_FIELDS):
            raise click.BadParameter(f"unknown field {{{min(unknown)}}}; the fields are {', '.join(_FIELDS)}")
        text.format(**dict.fromkeys(_FIELDS, ""))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}; write {{{{ for a brace") from None
    return _ESCAPES.sub(lambda found: _ESCAPED[found[0]], text)


@click.command(help=_HELP, short_help="Print the messages that match a pattern.")
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@dialect_option("patterns without a dialect name")
@endpoint_options(default="--connect")
@click.option("-n", "--count", type=Whole(1), metavar="N", help="Exit after N messages.")
@click.option(
    "-t",
    "--timeout",
    type=Number(),
    default=MAX_SECONDS,
    metavar="SECONDS",
    help="Exit 4 after this time without a message.",
)
@json_option("Write one JSON object a line.")
@click.option(
    "-f",
    "--format",
    "template",
    metavar="TEXT",
    callback=_read_template,
    help="Text of each line, such as '{subject} {payload}'. \\t is a tab, and \\n a line break.",
)
@filtering_option
@delivery_options
@click.option(
    "--headers", "with_headers", is_flag=True, help="Also write the headers, as JSON after the subject."
)
@bus_options
@payload_option(" With --bus.")
@security_option
@quiet_option
@click.pass_context
def sub(
    ctx: click.Context,
    /,
    patterns: tuple[str, ...],
    dialect: str,
    count: int | None,
    timeout: float,
    as_json: bool,
    template: str | None,
    filtering: str,
    with_headers: bool,
    form: str,
    **given: Any,
) -> None:
    """Print messages; `_HELP` is the text of `--help`."""
    is_bus = is_on_bus(given)
    if template is not None and (as_json or with_headers):
        raise click.UsageError("--format writes the whole line: leave out --json and --headers")
    if not is_bus and form != "text":
        raise click.UsageError("--payload needs --bus; without it payloads are bytes")
    if is_bus and filtering == "prefix":
        raise click.UsageError("--filtering prefix does not go with --bus: nodes filter at the publisher")
    compiled = parse_all(patterns, dialect)
    delivery = delivery_arguments(given)
    # A denied pattern is rejected before the command binds or waits.
    check_subscribed(
        given["security"],
        of_applications(compiled) if is_bus else compiled,
        is_routed=is_bus or not (given["bind"] or filtering == "prefix"),
        group=delivery.get("group", ""),
    )
    if template is not None:
        shown: Callable[..., str] = partial(_as_template, template)
    else:
        shown = partial(_as_json if as_json else _as_text, with_headers=with_headers)
    with (
        listening() as waiting,
        _on_bus(ctx, waiting, compiled, delivery, given, dialect, PayloadForm(form), timeout)
        if is_bus
        else _on_sockets(ctx, waiting, compiled, delivery, given, dialect, filtering, timeout) as source,
    ):
        try:
            for number in counting(1):
                message = _receive(source, waiting, timeout)
                write_line(shown(message, source.payloads(message)))
                if number == count:
                    return
        except oz.Timeout:
            print_stderr(
                ctx,
                f"no message for {timeout:g} s{source.why_silent()}; check the pattern and the publisher, or give a "
                "longer --timeout",
            )
            ctx.exit(TIMED_OUT)


class _Source(NamedTuple):
    """Source of the messages: a node on a bus, or a subscriber.

    Attributes:
        receive: function that returns the next message, or raises `oz.Timeout`.
        payloads: function that returns the payload frames of a message as they are printed.
        check: function that is called before each receive.
        interval: maximum seconds between two calls of `receive`.
        why_silent: function that returns a possible reason why no message arrives. The reason continues a sentence. It
            is empty if no reason is known.
    """

    receive: Callable[..., oz.Message]
    payloads: Callable[[oz.Message], list[bytes]]
    check: Callable[[], object] = lambda: None
    interval: float = inf
    why_silent: Callable[[], str] = str


@contextmanager
def _on_bus(
    ctx: click.Context,
    waiting: Waiting,
    patterns: list[oz.Pattern],
    delivery: dict[str, Any],
    given: dict[str, Any],
    dialect: str,
    form: PayloadForm,
    timeout: float,
) -> Iterator[_Source]:
    with joined(ctx, given, dialect=dialect, codec=form.codec, on_event=partial(print_loss, ctx)) as node:
        subscription = node.subscribe(patterns, **delivery)
        node._node.news[waiting.bell.ring] = None
        print_ready(ctx, node)

        def receive(*, timeout: float) -> oz.Message:
            with suppress(oz.PermissionDenied):
                return subscription.receive(timeout=timeout)
            # The node has logged which peer denies the subscription. Messages of other peers still arrive.
            return receive(timeout=timeout)

        def why_silent() -> str:
            return without_printed_hints(
                ctx, subscription._engine.why_nothing_comes(timeout, subscription._inbox)
            )

        yield _Source(receive, lambda message: [form.write(message.payload)], why_silent=why_silent)


def print_loss(ctx: click.Context, event: oz.Event) -> None:
    """Report lost messages on stderr."""
    if event.kind == "loss":
        lost = "an unknown number of" if event.count is None else str(event.count)
        messages = "1 message" if event.count == 1 else f"{lost} messages"
        print_stderr(ctx, f"{messages} from {printable(event.about)} did not arrive")


@contextmanager
def _on_sockets(
    ctx: click.Context,
    waiting: Waiting,
    patterns: list[oz.Pattern],
    delivery: dict[str, Any],
    given: dict[str, Any],
    dialect: str,
    filtering: Any,
    timeout: float,
) -> Iterator[_Source]:
    bind, connect = given["bind"], given["connect"]
    if not (bind or connect):
        connect = [DEFAULT_ENDPOINT]
    with (
        log_in_lines(ctx, "warning: "),
        oz.Subscriber(
            connect,
            bind,
            dialect=dialect,
            filtering=filtering,
            security=given["security"],
            on_gap=partial(_print_gap, ctx),
            options=oz.Options(limits=resolve_limits()),
        ) as subscriber,
    ):
        subscriber.subscribe(patterns, **delivery)
        waiting.add(subscriber.fileno())
        is_ready = False

        def check(seconds: float = 0) -> None:
            nonlocal is_ready
            if is_ready:
                return
            try:
                subscriber.wait_ready(timeout=seconds)
            except oz.Timeout as error:
                if seconds:
                    print_stderr(ctx, f"{error}; waiting")
            else:
                is_ready = True
                print_status(ctx, ready_line(subscriber.endpoint, bind, connect, have_answered=True))

        check(min(timeout, SOCKET_READY_SECONDS))
        why_silent = partial(subscriber._engine.why_nothing_comes, timeout, None)
        yield _Source(
            subscriber.receive, lambda message: message.frames[1:], check, SERVICE_SECONDS, why_silent
        )


def _print_gap(ctx: click.Context, gap: oz.Gap) -> None:
    publisher = "a publisher" if gap.origin is None else f"publisher {gap.origin.hex()[:8]}…"
    if gap.count is None:
        print_stderr(ctx, f"messages of {publisher} may be lost, their number is unknown ({gap.reason})")
    elif gap.count == 1:
        print_stderr(ctx, f"1 message of {publisher} was lost ({gap.reason})")
    else:
        print_stderr(ctx, f"{gap.count} messages of {publisher} were lost ({gap.reason})")


def _receive(source: _Source, waiting: Waiting, timeout: float) -> oz.Message:
    deadline = time.monotonic() + timeout
    while True:
        is_over = time.monotonic() >= deadline
        source.check()
        try:
            return source.receive(timeout=0)
        except oz.Timeout:
            if is_over:
                raise
        waiting.wait(min(deadline, time.monotonic() + source.interval))


def _as_text(message: oz.Message, payloads: list[bytes], *, with_headers: bool) -> str:
    parts = [printable(message.subject), *map(printable, payloads)]
    if with_headers:
        parts.insert(1, json_text(headers_as_json(message.headers)))
    return " ".join(parts)


def _as_template(template: str, message: oz.Message, payloads: list[bytes]) -> str:
    seconds, rest = divmod(message.time_ns, 10**9)
    return template.format(
        subject=printable(message.subject),
        payload=" ".join(map(printable, payloads)),
        headers=json_text(headers_as_json(message.headers)),
        time=f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06}Z",
    )


def _as_json(message: oz.Message, payloads: list[bytes], *, with_headers: bool) -> str:
    fields: dict[str, Any] = json_field("subject", message.subject) | field("payload", message.payload)
    if len(payloads) > 1:
        fields["more"] = [json_field("payload", frame) for frame in payloads[1:]]
    if with_headers:
        fields["headers"] = headers_as_json(message.headers)
    return json_text(fields)
