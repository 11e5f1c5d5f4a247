"""What is inside a socket or a node: the one place where tests take what no user is given.

The machines behind an engine have public attributes, which tests look at. How to get at an engine is
private: what is behind a socket may change, and then these functions do.
"""


def engine_of(socket):
    """Give the engine of a publisher, a subscriber or a node."""
    return socket._engine


def shell_of(node):
    """Give what an engine of a node stands in: a thread of its own, or an event loop."""
    return node._shell


def takes_nobody_for_late(forwarder):
    """Tell whether it has begun so long ago that who comes now was not there before it."""
    return forwarder._forwarding._opened_at is None


def attachments_of(socket):
    """Give what keeps the connections and keys of the endpoints of a socket."""
    return socket._attachments


def registry_of(nameserver):
    """Give what a name server knows of its nodes."""
    return nameserver._registry


def socket_of(nameserver):
    """Give the socket of a name server, which shows what it is limited to."""
    return nameserver._socket


def ends_of(proxy):
    """Give the two sockets of a plain forwarder."""
    return proxy._front, proxy._back
