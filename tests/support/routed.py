"""Publishers and subscribers that have met, for tests of routed messages."""

from contextlib import ExitStack, suppress

import oz
from support.waiting import DEADLINE

END = "zz.end"
MARK = "a.mark"
"""A subject of the subscriptions themselves: it waits in line with their messages."""


class Stage(ExitStack):
    """Makes sockets and closes them at the end."""

    def pub(self, endpoint="tcp://127.0.0.1:*", **options):
        return self.enter_context(oz.Publisher(endpoint, **options))

    def sub(self, *pubs, filtering="publisher", **options):
        """Make a subscriber, with publisher-side filtering as a rule."""
        endpoints = [pub if isinstance(pub, str) else pub.endpoint for pub in pubs]
        return self.enter_context(oz.Subscriber(endpoints, filtering=filtering, **options))

    def member(self, *pubs, pattern="a.>", **options):
        """Make one with a subscription; give it and the list that it collects its messages in."""
        sub, got = self.sub(*pubs), []
        sub.subscribe(pattern, handler=got.append, **options)
        mark(sub)
        return sub, got


def mark(sub):
    """Subscribe to the mark that says that all has come, and wait until every publisher knows."""
    sub.subscribe(END, dialect="nats")
    sub.wait_ready(timeout=DEADLINE)


def finish(pubs, *subs):
    """Say that this was all, and take what there is: handlers are called."""
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
    """Publish a mark, one message more, and take what comes before it: all that was published."""
    pub.publish(MARK)
    pub.flush()
    taken = []
    while (message := sub.receive(timeout=DEADLINE)).subject != MARK:
        taken.append(message)
    return taken


def here(sub, timeout=0.0):
    """Take the messages that are here, and those of which each comes soon after the one before it."""
    taken = []
    with suppress(oz.Timeout):
        while True:
            taken.append(sub.receive(timeout=timeout))
    return taken
