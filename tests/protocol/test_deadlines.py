"""What a machine says is due at a time is done at just that time, whatever the last digit of a sum is.

On a real clock a moment more is over when it is looked at. On one that jumps the same time would come for
ever.
"""

from random import Random

import oz
from oz.protocol.node.discovery_client import DiscoveryClient
from oz.protocol.node.membership import Membership
from oz.protocol.node.registry import Registry
from oz.protocol.subscriber.declarations import Declarations
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.declared import declare
from oz.wire.discovery import Announce, Joined, Welcome, pack
from oz.wire.keys import DeliveryOptions
from support.announcing import announcement

STARTS = [Random(seed).uniform(0.0, 1000.0) for seed in range(100)]


def test_peer_without_a_link_is_lost_at_its_deadline():
    for start in STARTS:
        membership = Membership(announcement(0), 3.7)
        membership.hear(announcement(1), start)
        at = membership.next_deadline()
        assert membership.tick(at)
        # It is looked for again and again, until it is forgotten.
        for _ in range(100):
            before, at = at, membership.next_deadline()
            if at is None:
                break
            assert at > before
            membership.tick(at)
        assert at is None


def test_name_server_loses_a_silent_node_at_its_deadline():
    for start in STARTS:
        registry = Registry(bytes(16), "server", beacon=0.7, expiry=2.3)
        registry.receive(b"peer", pack(Announce(announcement(1), False)), start)
        registry.tick(start)
        last = start
        while (at := registry.next_deadline()) is not None:
            assert at > last
            registry.tick(at)
            last = at


def test_name_server_that_is_silent_counts_no_more_at_its_deadline():
    for start in STARTS:
        client = DiscoveryClient(announcement(1), "tcp://a:1")
        for reply in (Welcome(bytes(16), "server", 50.0, 2.3), Joined(announcement(1))):
            client.receive(pack(reply), start)
        client.tick(start)
        assert client.is_registered(start)
        assert not client.is_registered(client.next_deadline(start))


def test_subscription_is_declared_again_and_shown_again_at_its_deadline():
    for start in STARTS:
        declarations = Declarations(bytes(16), DeliveryOptions(), greet_every=7.3)
        pattern = oz.compile("a.*")
        declarations.add(Subscribed([pattern], None, lambda _: None), [declare(pattern)], last_value=False)
        assert not declarations.renew({1: start}, start).wanted
        assert not declarations.greet(start).wanted
        assert declarations.renew({1: start}, declarations.next_deadline({1: start})).wanted
        assert declarations.greet(declarations.next_deadline({})).wanted
