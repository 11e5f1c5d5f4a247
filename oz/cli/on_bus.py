"""The node behind `oz pub` and `oz sub`: to them it is like sockets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

import oz
from oz.cli.exits import FAILED, unsent
from oz.cli.joining import joined, say_ready
from oz.cli.output import say
from oz.cli.payloads import PayloadForm
from oz.cli.waiting import Waiting
from oz.escaping import printable

_DAYS = 86_400.0  # seconds; ZeroMQ counts them in milliseconds, in 32 bits

_LOSSES = {"gap": "did not arrive", "slow_consumer": "dropped: they come faster than they are read"}


class BusPublisher:
    """A node, as `oz pub` sees it."""

    def __init__(self, node: oz.Node, form: PayloadForm) -> None:
        """Take a node that has joined."""
        self._node, self._form = node, form

    def publish(self, subject: bytes, payload: bytes, **extras: Any) -> None:
        """Publish the value that `payload` is written for."""
        self._node.publish(subject, self._form.read(payload), **extras)

    def has_subscribers(self, subject: bytes) -> bool:
        """Return whether a node of the bus has a subscription for the subject."""
        return self._node.interest(subject)

    def wait_for_subscribers(self, subject: bytes, *, timeout: float) -> None:
        """Wait for subscriptions; see `oz.Publisher`."""
        self._node.wait_for_subscribers(1, subject, timeout)


@contextmanager
def bus_publisher(
    ctx: click.Context,
    given: Mapping[str, Any],
    form: PayloadForm,
    *,
    dialect: str,
    last_value: bool,
    close_timeout: float,
) -> Iterator[BusPublisher]:
    """Join, and say so; leave when all is sent, or within `close_timeout` seconds on Ctrl-C."""
    options: dict[str, Any] = {
        "dialect": dialect,
        "codec": form.codec,
        "echo": False,
        "on_full": "block",
        "last_value": last_value,
    }
    with joined(ctx, given, **options) as node:
        say_ready(ctx, node)
        try:
            yield BusPublisher(node, form)
        except BaseException as error:
            # Messages that were published before the error are still sent.
            node.close(timeout=close_timeout if isinstance(error, (KeyboardInterrupt, SystemExit)) else _DAYS)
            raise
        published = node.stats.published
        try:
            node.close(timeout=_DAYS)
        except (KeyboardInterrupt, SystemExit):
            say(ctx, unsent(published))
            ctx.exit(FAILED)


class Shown(NamedTuple):
    """A message of the bus, in the form in which `oz sub` prints messages."""

    subject: str
    payload: Any
    frames: list[bytes]
    headers: Mapping[str, Any]


class BusSubscriber:
    """A node, as `oz sub` sees it."""

    def __init__(self, ctx: click.Context, node: oz.Node, form: PayloadForm) -> None:
        """Take a node that has joined."""
        self.node, self._form, self._ctx = node, form, ctx
        self._subscription: Any = None

    def subscribe(self, patterns: Sequence[oz.Pattern], options: Mapping[str, Any]) -> None:
        """Subscribe, and say on stderr what is lost."""
        self.node.subscribe("_OZ.ADVISORY.WARN.*", dialect="nats", handler=self._say_loss)
        self._subscription = self.node.subscribe(patterns, **options)

    @contextmanager
    def heard_by(self, waiting: Waiting) -> Iterator[None]:
        """Ring for each message, in a `with` block."""
        with self._subscription.queue.news.rings(waiting.bell.ring):
            yield

    def receive(self, *, timeout: float) -> Shown:
        """Wait for a message.

        Raises:
            Timeout: none came in time.
        """
        message = self._subscription.receive(timeout)
        frames = [message.subject_bytes, self._form.write(message.payload)]
        return Shown(message.subject, message.payload, frames, message.headers)

    def wait_ready(self, *, timeout: float) -> None:
        """Wait for peers to answer; see `oz.Node`."""
        self.node.wait_ready(timeout)

    def _say_loss(self, message: oz.Message) -> None:
        advisory = message.payload
        if advisory.kind in _LOSSES:
            of = f" of {printable(advisory.about)}" if advisory.kind == "gap" else ""
            say(self._ctx, f"{_messages(advisory.count, of)} {_LOSSES[advisory.kind]}")


def _messages(count: int | None, of: str) -> str:
    if count is None:
        return f"messages{of}, nobody knows how many,"
    return f"1 message{of}" if count == 1 else f"{count} messages{of}"
