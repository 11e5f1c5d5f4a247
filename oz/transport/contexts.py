"""Detection of a ZeroMQ context that a program has ended, by `term` or `destroy`, while sockets are in use."""

from __future__ import annotations

from typing import Any

import zmq


def has_ended(error: BaseException, context: zmq.Context[Any]) -> bool:
    """Return whether an error was raised because the context was terminated, or because a socket was closed.

    Args:
        error: error that a call of a socket or of the context has raised.
        context: context of the sockets.
    """
    return isinstance(error, zmq.ZMQError) and (
        # ENOTSOCK: `destroy` closes the sockets before it terminates the context. A closed context creates no socket.
        error.errno in (zmq.ETERM, zmq.ENOTSOCK) or context.closed
    )
