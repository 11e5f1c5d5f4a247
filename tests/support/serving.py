"""Name servers that run in a thread of the test."""

from contextlib import contextmanager

from oz.services import NameServer
from support.waiting import Thread


@contextmanager
def serving(bind="tcp://127.0.0.1:*", **options):
    """A name server in a thread."""
    with NameServer(bind, **options) as server:
        running = Thread(server.run)
        yield server
    running.outcome()
