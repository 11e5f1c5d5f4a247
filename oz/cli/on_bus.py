"""Node of `oz sub`, with the calls of a subscriber."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

import oz
from oz.cli.output import print_stderr
from oz.cli.payloads import PayloadForm
from oz.escaping import printable
from oz.transport.bell import Bell

_QUEUE_SIZE = 1_000
"""Messages that wait for the output."""


class Shown(NamedTuple):
    """Message of a bus for the output of `oz sub`."""

    subject: str
    payload: Any
    frames: list[bytes]
    headers: Mapping[str, Any]
    time_ns: int


class BusSubscriber:
    """Subscription of a node with the methods of a subscriber, for `oz sub`."""

    def __init__(self, form: PayloadForm, bell: Bell) -> None:
        """Create an object without a subscription; each message rings the bell."""
        self._form, self._bell = form, bell
        self._messages: queue.Queue[oz.Message] = queue.Queue(_QUEUE_SIZE)

    def put(self, message: oz.Message) -> None:
        """Handle a message. A full queue blocks, so that the overflow policy of the subscription takes effect."""
        self._messages.put(message)
        self._bell.ring()

    def end(self) -> None:
        """Stop a handler that waits for the full queue, so that the node can close."""
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
