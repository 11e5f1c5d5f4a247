"""The `publish` of a publisher: the short way for what is common, and the long way for the rest.

docs/decisions/014-the-short-way.md
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import zmq

from oz.compiled import HOT
from oz.message import Extras
from oz.transport.publisher.sender import LISTEN_EVERY, Refused, Sender
from oz.wire.batch import LARGE

LOOK_EVERY = 1024
"""Messages that nobody wants after which a busy publisher takes in subscriptions, as those do not look at the
clock."""


def long_way(
    sender: Sender, socket: Any, when_refused: Callable[[Any, Refused], object]
) -> Callable[[Any, Any, Extras | None], None]:
    """Make a `publish` for messages of any kind; see `Sender.publish`.

    Args:
        sender: of the publisher.
        socket: of the publisher.
        when_refused: called with the subject and the message, when that was not sent.
    """

    def publish(subject: Any, payload: Any = b"", extras: Extras | None = None) -> None:
        refused = sender.publish(socket, subject, payload, extras)
        if refused is not None:
            when_refused(subject, refused)

    return publish


def short_way(
    sender: Sender, socket: Any, otherwise: Callable[..., Any], *, looks: bool
) -> Callable[..., Any] | None:
    """Make a `publish` that is quick when the publisher is busy.

    Args:
        sender: of the publisher.
        socket: of the publisher.
        otherwise: the long way, called with the same arguments for whatever is not the common case.
        looks: whether it must look for subscriptions itself, as no other thread does.

    Returns:
        A function that is called with subject, payload and extras, in the form of the long way, and
        gives None or what that gives. None instead of it for a publisher with a codec or last values.
    """
    if not sender.has_short_way:
        return None
    accumulator = sender.accumulator
    quick, waiting, add = sender.routes.quick, accumulator.messages, accumulator.messages.extend
    dispatch, stats = sender.dispatch, sender.stats

    def publish(subject: Any, payload: Any = b"", extras: Any = None, **fields: Any) -> Any:
        if type(payload) is bytes and extras is None and not fields:
            try:
                way = quick[subject]
            except (KeyError, TypeError):
                way = False
            if way is None:
                stats.unwanted += 1
                if looks and not stats.unwanted % LOOK_EVERY:
                    sender.look(socket)
                return None
            if type(way) is tuple:
                if len(payload) < LARGE and not dispatch.is_blocked:
                    recipients, raw = way
                    try:
                        if not waiting:
                            accumulator.begin(socket, recipients, raw, payload)
                            return None
                        # One call, so that another thread sees all three or none.
                        add((recipients, raw, payload))
                        if len(waiting) >= accumulator.limit:
                            accumulator.flush(socket)
                    except zmq.ZMQError:
                        sender.check_open()
                        raise
                    return None
            elif (
                way
                and len(payload) < LARGE
                and not sender.look(socket)
                and _try_plain(sender, socket, way, payload)
            ):
                return None
        if extras is None:
            return otherwise(subject, payload, **fields)
        return otherwise(subject, payload, extras, **fields)

    if HOT is None:
        return publish
    return HOT.Publish(
        twin=publish,
        flush=partial(sender.flush_full, socket),
        quick=quick,
        waiting=waiting,
        dispatch=dispatch,
        accumulator=accumulator,
        stats=stats,
        sender=sender,
        guard=sender.guard,
        monotonic=sender.monotonic,
        socket=socket,
        error=zmq.ZMQError,
        alone=sender.send_alone,
        large=LARGE,
        look_every=LOOK_EVERY if looks else 0,
        listen_every=LISTEN_EVERY,
    )


def _try_plain(sender: Sender, socket: Any, wire: bytes, payload: bytes) -> bool:
    """Send a message that only plain subscribers want; tell whether it could go at once."""
    if sender.guard.is_interrupted:
        return False
    try:
        sender.hand_over(socket, wire, payload, sender.flags)
    except zmq.Again:
        return False
    except zmq.ZMQError:
        sender.check_open()
        raise
    if not sender.is_unheard:
        sender.listen()
    sender.stats.sent += 1
    return True
