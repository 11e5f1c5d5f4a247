"""`oz ping`: round trip times to a node, or to the responders of a subject."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

import oz
from oz.cli.exits import NOBODY, TIMED_OUT
from oz.cli.joining import is_ready, joined, joining_options
from oz.cli.options import Number, Whole
from oz.cli.output import is_quiet, json_option, print_status, print_stderr, quiet_option, write_line
from oz.cli.waiting import Waiting, listening
from oz.escaping import json_text, printable

_POLL_SECONDS = 0.05

_HELP = """Measure the round trip time to a node, or to a responder.

TARGET is the name of a node, or otherwise a subject. A node answers with its statistics, even while its handlers are
busy. For a subject, the command sends a request without a payload, to which the handler of a responder replies.

The exit code is 0 if a reply came, 1 if permissions deny the request, 3 if no node and no subscription fits TARGET, and
4 if no reply came in time. Therefore the command can be used as a probe: oz ping NAME --count 1 --quiet.

\b
Examples:
  oz ping pricing
  oz ping svc.health --count 1 --timeout 2
"""


@click.command(help=_HELP, short_help="Measure the round trip time to a node or a responder.")
@click.argument("target")
@click.option("-n", "--count", type=Whole(1), metavar="N", help="Number of pings.  [default: until Ctrl-C]")
@click.option("-t", "--timeout", type=Number(0.01, 3_600), default=1.0, metavar="SECONDS",
              help="Time for a reply.  [default: 1]")  # fmt: skip
@click.option("--interval", type=Number(0, 3_600), default=1.0, metavar="SECONDS",
              help="Time between two pings.  [default: 1]")  # fmt: skip
@click.option("--wait", type=Number(0, 3_600), default=5.0, metavar="SECONDS",
              help="Time to find the node or the responder.  [default: 5]")  # fmt: skip
@json_option("Write one JSON object a line.")
@quiet_option
@joining_options
@click.pass_context
def ping(
    ctx: click.Context,
    /,
    target: str,
    count: int | None,
    timeout: float,
    interval: float,
    wait: float,
    as_json: bool,
    **joining: Any,
) -> None:
    """Ping a node or a subject; `_HELP` is the text of `--help`."""
    times: list[float] = []
    sent, began = 0, 0.0
    with listening() as waiting, joined(ctx, joining, node_options={"echo": False}) as node:
        send = _find(node, target, wait, timeout, waiting)
        if send is None:
            where = f"on bus {printable(node.bus)}"
            print_stderr(ctx, f"no node {printable(target)} and no subscription for it {where}")
            ctx.exit(NOBODY)
        try:
            while count is None or sent < count:
                if sent:
                    waiting.wait(began + interval)
                sent, began = sent + 1, time.monotonic()
                answer = send()
                if answer is None:
                    _show(ctx, as_json, sent, target, None)
                    continue
                times.append(time.monotonic() - began)
                _show(ctx, as_json, sent, answer, times[-1])
        except KeyboardInterrupt:
            pass
    _summarize(ctx, target, sent, times, as_json=as_json)
    if not times:
        ctx.exit(TIMED_OUT)


def _find(
    node: oz.Node, target: str, wait: float, timeout: float, waiting: Waiting
) -> Callable[[], str | None] | None:
    """Return a function that sends one ping to the target; None if no node or subscription is found in `wait` seconds.

    The returned function returns the name of the responder, or None if no answer comes in time.
    """
    end = time.monotonic() + wait
    is_ready(node, min(wait, 1.0))
    while True:
        with suppress(oz.NoResponders):
            node.request_snapshots(target, timeout=0)
            return lambda: _ping_node(node, target, timeout)
        with suppress(oz.SubjectError):
            if node.has_subscribers(target):
                return lambda: _ping_subject(node, target, timeout)
        if time.monotonic() >= end:
            return None
        waiting.wait(min(time.monotonic() + _POLL_SECONDS, end))


def _ping_node(node: oz.Node, name: str, timeout: float) -> str | None:
    with suppress(oz.NoResponders):
        return next((snapshot.name for snapshot in node.request_snapshots(name, timeout=timeout)), None)
    return None


def _ping_subject(node: oz.Node, subject: str, timeout: float) -> str | None:
    names = {peer.id: peer.name for peer in node.peers}
    with suppress(oz.Timeout, oz.NoResponders, oz.PeerLost, oz.ReplyError, oz.WouldBlock):
        reply = node.request(subject, None, timeout=timeout)
        origin = "" if reply.origin is None else reply.origin.hex()
        return names.get(origin, origin)
    return None


def _show(ctx: click.Context, as_json: bool, number: int, who: str, seconds: float | None) -> None:
    if as_json:
        write_line(json_text({"number": number, "from": who, "seconds": seconds and round(seconds, 6)}))
    elif seconds is None:
        print_status(ctx, f"no reply from {who} to ping {number}")
    elif not is_quiet(ctx):
        write_line(f"reply from {printable(who)}: number={number} time={seconds * 1000:.3f} ms")


def _summarize(ctx: click.Context, target: str, sent: int, times: list[float], *, as_json: bool) -> None:
    if as_json or is_quiet(ctx):
        return
    line = f"{target}: {sent} sent, {len(times)} answered"
    if times:
        low, mean, high = min(times), sum(times) / len(times), max(times)
        line += f", min/avg/max = {low * 1000:.3f}/{mean * 1000:.3f}/{high * 1000:.3f} ms"
    print_stderr(ctx, line)
