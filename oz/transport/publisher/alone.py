"""The shortest way of a message that waits for no others, on its way to one subscriber that filters here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from oz.compiled import HOT
from oz.protocol.publisher.backlog import WATCHED_FROM
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.stream import OutStream
from oz.transport.backend import SENDIOV_AT, address_of, backend_of
from oz.transport.libzmq import IS_KNOWN
from oz.transport.publisher import accumulator as accumulating
from oz.transport.publisher.sender import LISTEN_EVERY, Sender
from oz.transport.publisher.sink import XpubSink
from oz.wire.batch import pack_array
from oz.wire.extras import Rich

SendAlone = Callable[[Any, bytes, Any], bool]
"""Called with recipients, subject and payload; does what `Accumulator.begin` does, or gives False."""


def shortest(sender: Sender, sink: XpubSink, socket: Any) -> SendAlone | None:
    """Return what sends such a message in the compiled part; None where `Accumulator.begin` does it.

    In a loop that does it always: what is published in the rest of a turn waits for its end.

    Args:
        sender: of the publisher.
        sink: of the publisher.
        socket: of the publisher.
    """
    accumulator = sender.accumulator
    has_one_call = IS_KNOWN and SENDIOV_AT and backend_of(socket).send_whole is not None
    address = address_of(socket) if has_one_call else 0
    if HOT is None or not address or accumulator.in_turns or type(sender.dispatch) is not Batches:
        return None

    def look() -> None:
        try:
            sender.look(socket)
        except zmq.ZMQError:
            sender.check_open()
            raise

    return HOT.SendAlone(
        accumulator=accumulator,
        guard=sender.guard,
        postponed=sender.guard.postponed,
        messages=accumulator.messages,
        dispatch=sender.dispatch,
        sink=sink,
        stats=sender.stats,
        sender=sender,
        clock=sender.monotonic,
        look=look,
        socket=socket,
        stream=OutStream,
        rich=Rich,
        pack=pack_array,
        address=address,
        sendiov=SENDIOV_AT,
        most=WATCHED_FROM,
        quiet=accumulating.QUIET,
        share=accumulating.SHARE,
        listen_every=LISTEN_EVERY,
    )
