"""Error for endpoints. `import oz` does not load this module, because it imports pyzmq."""

from __future__ import annotations

import zmq

from oz.errors import OzError


class EndpointError(OzError, ValueError, zmq.ZMQError):
    """A malformed endpoint, or an endpoint that this socket or this system cannot use.

    `errno` is EINVAL if the text is no endpoint, and EPROTONOSUPPORT if libzmq was built without the transport. In
    other cases `errno` is the number from libzmq, such as EADDRINUSE.
    """

    def __init__(self, text: str, code: int = zmq.EINVAL) -> None:
        """Set the message and the errno."""
        zmq.ZMQError.__init__(self, code, text)
