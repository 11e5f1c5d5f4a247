"""Access of tests to the engine of a socket or node, which is private."""


def engine_of(socket):
    """Return the engine of a publisher, a subscriber or a node."""
    return socket._engine
