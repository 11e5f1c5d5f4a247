"""TCP ports for what is closed and comes back, or comes later than those who look for it."""

import random
import socket
from contextlib import suppress

PLACES = range(20_000, 32_000)
"""Below the ports that the system gives out by itself: a connection of some other test could get one of these
while it is free."""


def lasting_port():
    """Find a port that nobody holds, and that nobody gets by chance."""
    while True:
        port = random.SystemRandom().choice(PLACES)  # not seeded: tests run in several processes
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def lasting_endpoint():
    """Give an endpoint of this host on such a port."""
    return f"tcp://127.0.0.1:{lasting_port()}"
