"""Node of `oz pub` and `oz sub`, with the calls of a publisher and a subscriber."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple

import click

import oz
from oz.cli.exits import FAILED, unsent
from oz.cli.joining import joined, print_ready
from oz.cli.output import print_stderr
from oz.cli.payloads import PayloadForm
from oz.cli.waiting import Waiting
from oz.escaping import printable

_DAYS = 86_400.0  # Seconds.
_QUEUE_SIZE = 1_000
"""Messages that wait for the output."""


class BusPublisher:
    """Node with the methods of a publisher, for `oz pub`."""

    def __init__(self, node: oz.Node, form: PayloadForm) -> None:
        """Wrap a node that has joined its bus."""
        self._node, self._form = node, form

    def publish(self, subject: bytes, payload: bytes, **extras: Any) -> None:
        """Publish the value of a payload in the form of `--payload`."""
        self._node.publish(subject, self._form.read(payload), **extras)

    def has_subscribers(self, subject: bytes) -> bool:
        """Return whether a node of the bus has a subscription for the subject."""
        return self._node.has_subscribers(subject)

    def wait_for_subscribers(self, subject: bytes, *, timeout: float) -> None:
        """Wait for subscriptions; see `oz.Publisher`."""
        self._node.wait_for_subscribers(subject, timeout=timeout)


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
    """Join a bus for a `with` block. At its end wait until all messages are sent; on Ctrl-C `close_timeout` seconds."""
    options: dict[str, Any] = {
        "dialect": dialect,
        "codec": form.codec,
        "on_full": "block",
        "last_value": last_value,
    }
    with joined(ctx, given, node_options={"echo": False, "send_timeout": inf}, **options) as node:
        print_ready(ctx, node)
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
            print_stderr(ctx, unsent(published))
            ctx.exit(FAILED)


class Shown(NamedTuple):
    """Message of a bus for the output of `oz sub`."""

    subject: str
    payload: Any
    frames: list[bytes]
    headers: Mapping[str, Any]
    time_ns: int


class BusSubscriber:
    """Subscription of a node with the methods of a subscriber, for `oz sub`."""

    def __init__(self, form: PayloadForm) -> None:
        """Create an object without a subscription."""
        self._form = form
        self._messages: queue.Queue[oz.Message] = queue.Queue(_QUEUE_SIZE)
        self._ring: Callable[[], object] = lambda: None

    def subscribe(self, node: oz.Node, patterns: Sequence[oz.Pattern], options: Mapping[str, Any]) -> None:
        """Subscribe at a node that has joined."""
        node.subscribe(patterns, self._put, **options)

    def _put(self, message: oz.Message) -> None:
        # A full queue blocks, so that the overflow policy of the subscription takes effect.
        self._messages.put(message)
        self._ring()

    @contextmanager
    def heard_by(self, waiting: Waiting) -> Iterator[None]:
        """Ring the bell of a wait for each message, in a `with` block."""
        self._ring = waiting.bell.ring
        try:
            yield
        finally:
            # A handler that waits for the full queue must end, so that the node can close.
            self._messages.maxsize = 0
            with self._messages.not_full:
                self._messages.not_full.notify_all()

    def receive(self, *, timeout: float) -> Shown:
        """Return the next message.

        Raises:
            Timeout: no message arrived in time.
        """
        try:
            message = self._messages.get(timeout=timeout) if timeout else self._messages.get_nowait()
        except queue.Empty:
            raise oz.Timeout("no message arrived in time") from None
        frames = [message.subject_bytes, self._form.write(message.payload)]
        return Shown(message.subject, message.payload, frames, message.headers, message.time_ns)


def print_loss(ctx: click.Context, event: oz.Event) -> None:
    """Report lost messages on stderr."""
    if event.kind == "loss":
        print_stderr(ctx, f"{_messages(event.count)} from {printable(event.about)} did not arrive")


def _messages(count: int | None) -> str:
    if count is None:
        return "an unknown number of messages"
    return "1 message" if count == 1 else f"{count} messages"
