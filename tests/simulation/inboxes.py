"""Laws of answers at a subscriber: each has a subject of its own, and the next is for whom the last was."""

from __future__ import annotations

import oz
from oz.protocol.node.reserved_subjects import INBOX
from oz.protocol.subscriber.subscriptions import Subscribed, SubscriptionTable
from simulation.ledger import check


def check_inboxes(random):
    """Route the answers that come to some inboxes: to all who wait there, by a handler or not."""
    table, standing = SubscriptionTable(), []
    for _ in range(random.randrange(1, 4)):
        owner, handler = random.choice("ab"), random.choice((None, print))
        one = Subscribed([oz.compile(f"{INBOX}{owner}.>")], handler, print)
        one.left = random.choice((None, None, 3))
        table.add(one)
        standing.append((owner, one))
    for number in range(6):
        owner = random.choice("ab")
        subject = f"{INBOX}{owner}.{number}"
        expected = tuple(one for other, one in standing if other == owner)
        route = table.route(subject.encode())
        check(route.subject == subject, "{} is routed as {}", subject, route.subject)
        check(set(route.subscriptions) == set(expected), "{} is for {} of {}", subject, route, expected)
        handled = {one for one in expected if one.handler is not None}
        is_counted = any(one.left is not None for one in expected)
        found = set(route.handled), route.is_listed, route.is_counted, route.is_only_listed
        is_listed = len(handled) < len(expected)
        said = handled, is_listed, is_counted, is_listed and not (handled or is_counted)
        check(found == said, "the route of {} says {}, and not {}", subject, found, said)
        check(route.is_clear == bool(expected), "{} is for nobody: {}", subject, route.is_clear)
        check(not (route.is_malformed or route.timed_out), "{} is malformed", subject)
