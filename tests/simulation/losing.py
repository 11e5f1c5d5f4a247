"""Laws of who loses something: connections whose rights change, and publishers that are one too many."""

from __future__ import annotations

import oz
from oz.protocol.publisher.access import Access, Rights
from oz.protocol.publisher.accounts import Peer
from oz.protocol.publisher.interest_queue import InterestQueue
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.sequences import Source, forget_some
from oz.security.limits import DEFAULT_LIMITS
from oz.security.permissions import Permissions, Rule, User
from oz.wire.keys import ID_SIZE, Declaration, Declared, pattern_key, stream_key
from simulation.ledger import check

NS = 1_000_000_000
LONG = 5.0
"""Seconds for which a publisher is heard until it counts as one that has gone on for long."""

WAYS = "plain", "shared", "own", "other"
"""How somebody asks for what it may lose; the last asks for something else."""


def _keys(way, name):
    pattern = Declared(1, b"a.*")
    own = [stream_key(name), Declaration(name, 1, patterns=(pattern,)).encode()]
    return {"plain": [b"a."], "shared": [pattern_key(pattern)], "own": own, "other": [b"b."]}[way]


def check_losers(random):
    """Once rights have changed those are to be cut off that hold what they may not have, in whatever way."""
    peers = [Peer(number, number, str(number) * 40) for number in range(5)]
    rights = [Rights(frozenset(one.key for one in peers), None)]
    access = Access(lambda: rights[-1], "nats", b"")
    router = Router(bytes(16), PublisherStats())
    queue = InterestQueue(router, DEFAULT_LIMITS, lambda _: True, access)
    asked = {one: random.choice(WAYS) for one in peers}
    for one, way in asked.items():
        for key in _keys(way, one.key.encode()[:ID_SIZE]):
            queue.take(b"\1" + key, one, 100.0)
    while queue.waits:
        queue.work(lambda: 100.0)
    queue.revoke(100.0)
    check(not queue.to_cut, "{} have lost nothing, and are cut off", queue.to_cut)
    trusted = frozenset(one.key for one in peers if random.random() < 0.8)
    denied = {one.key for one in peers if random.random() < 0.5}
    rule = Rule("subscribe", "deny", "a.*", oz.compile("a.*"), "r", None)
    users = {one: User(one[:4], (one,), rules=(rule,)) for one in denied}
    rights.append(Rights(trusted, Permissions("allow", users)))
    access.has_changed()
    queue.revoke(100.0)
    lost = {
        one for one, way in asked.items() if one.key not in trusted or (one.key in denied and way != "other")
    }
    ways = [asked[one] for one in lost], [asked[one] for one in queue.to_cut]
    check(sorted(queue.to_cut) == sorted(lost), "{} are to be cut off, not {}", *ways)
    kept = {one.account.peer for one in router.streams.values() if not one.is_shared}
    left = {one for one, way in asked.items() if way == "own" and one not in lost}
    check(kept == left, "streams are kept of {}, not of {}", len(kept), len(left))


def check_forgotten(random):
    """An eighth is forgotten: first who is silent or has just come, and of those who was so for longest."""
    now, sources = 1_000 * NS, {}
    for number in range(random.choice((1, 7, 8, 40))):
        source = sources[b"%d" % number] = Source()
        source.heard_at = now - random.randrange(20) * NS // 2
        source.first_at = source.heard_at - random.randrange(20) * NS // 2
    every = dict(sources)
    gone = forget_some(sources, now)
    is_old = {one: two.heard_at - two.first_at >= LONG * NS for one, two in every.items()}

    def worth(one):
        return is_old[one] and now - every[one].heard_at < LONG * NS, every[one].heard_at

    left = every.keys() - sources.keys()
    check(len(left) == max(1, len(every) // 8), "{} of {} are forgotten", len(left), len(every))
    check(set(gone) == {one for one in left if is_old[one]}, "{} are missed of {}", list(gone), left)
    least = min(map(worth, sources), default=None)
    is_right = least is None or max(map(worth, left)) <= least
    check(is_right, "{} are forgotten, and are worth more than others", left)
