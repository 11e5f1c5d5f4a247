"""Messages that have arrived."""

from contextlib import suppress

import oz

"""A subject of the subscriptions themselves: it waits in line with their messages."""


def here(sub, timeout=0.0):
    """Receive messages until none arrives within a timeout."""
    taken = []
    with suppress(oz.Timeout):
        while True:
            taken.append(sub.receive(timeout=timeout))
    return taken
