"""Publishers and subscribers that have met, for tests of routed messages."""

from contextlib import ExitStack, suppress

import oz
from support.waiting import DEADLINE

END = "zz.end"
MARK = "a.mark"
"""A subject of the subscriptions themselves: it waits in line with their messages."""


class Stage(ExitStack):
    """Factory of sockets, which it closes at the end."""

    def pub(self, endpoint="tcp://127.0.0.1:*", **options):
        return self.enter_context(oz.Publisher(endpoint, **options))

    def sub(self, *pubs, filtering="publisher", **options):
        """Create a subscriber that filters at the publisher by default."""
        endpoints = [pub if isinstance(pub, str) else pub.endpoint for pub in pubs]
        return self.enter_context(oz.Subscriber(endpoints, filtering=filtering, **options))

    def member(self, *pubs, pattern="a.>", **options):
        """Return a subscriber with a subscription, and the list of its messages."""
        sub, got = self.sub(*pubs), []
        sub.subscribe(pattern, handler=got.append, **options)
        mark(sub)
        return sub, got


def mark(sub):
    """Subscribe to the end, and wait until every publisher serves it."""
    sub.subscribe(END, dialect="nats")
    sub.wait_ready(timeout=DEADLINE)


def finish(pubs, *subs):
    """Publish the end, and receive up to it, so that handlers run."""
    for pub in pubs:
        pub.flush()
        pub.publish(END)
        pub.flush()
    for sub in subs:
        for _ in pubs:
            assert sub.receive(timeout=DEADLINE).subject == END


def payloads(messages):
    return [message.payload for message in messages]


def up_to_mark(pub, sub):
    """Publish a mark; return the messages that arrive before it."""
    pub.publish(MARK)
    pub.flush()
    taken = []
    while (message := sub.receive(timeout=DEADLINE)).subject != MARK:
        taken.append(message)
    return taken


def here(sub, timeout=0.0):
    """Receive messages until none arrives within a timeout."""
    taken = []
    with suppress(oz.Timeout):
        while True:
            taken.append(sub.receive(timeout=timeout))
    return taken
