"""The end of a ZeroMQ context under open sockets: `zmq.Context.term` in another thread, or `zmq.Context.destroy`."""

from __future__ import annotations

from typing import Any

import zmq


def has_ended(error: BaseException, context: zmq.Context[Any]) -> bool:
    """Return whether an error comes from a context that was terminated, or whose sockets were closed.

    Args:
        error: error that a call of a socket or of the context has raised.
        context: context of the sockets.
    """
    return isinstance(error, zmq.ZMQError) and (
        # `destroy` closes the sockets before it terminates the context; no socket can be created then.
        error.errno in (zmq.ETERM, zmq.ENOTSOCK) or context.closed
    )
