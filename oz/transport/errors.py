"""Error for endpoints. Its class derives from an error of pyzmq, and therefore `import oz` does not load it."""

from __future__ import annotations

import zmq

from oz.errors import OzError


class EndpointError(OzError, ValueError, zmq.ZMQError):
    """A malformed endpoint, or an endpoint that this socket or this system cannot use.

    `errno` is EINVAL for a text that is no endpoint, and EPROTONOSUPPORT if libzmq was built without the transport.
    Otherwise it is the errno of libzmq, such as EADDRINUSE.
    """

    def __init__(self, text: str, code: int = zmq.EINVAL) -> None:
        """Set the message and the errno."""
        zmq.ZMQError.__init__(self, code, text)
