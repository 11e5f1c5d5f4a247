import oz
from oz.protocol.node.reserved_subjects import ReservedIndex
from oz.protocol.subscriber import subscriptions
from oz.protocol.subscriber.subscriptions import Subscribed, SubscriptionTable


def subscription(*patterns, dialect="nats", handler=None):
    compiled = [
        oz.compile(one, dialect) if isinstance(one, str) else oz.compile(one, "zmq") for one in patterns
    ]
    return Subscribed(compiled, handler, lambda one: None)


def test_removing_twice_gives_up_nothing_twice():
    table = SubscriptionTable()
    one, other = subscription("a.*"), subscription("a.*")
    table.add(one)
    table.add(other)
    table.remove(one)
    table.remove(one)
    assert not one.active
    assert other.active
    assert table.route(b"a.b").subscriptions == (other,)


def test_a_subscription_stands_once_in_a_route_however_many_of_its_patterns_match():
    table = SubscriptionTable()
    one, other = subscription("a.*", "a.>", ">"), subscription("a.b")
    table.add(one)
    table.add(other)
    assert sorted(map(id, table.route(b"a.b").subscriptions)) == sorted(map(id, (one, other)))


def test_a_subscription_is_found_by_other_patterns_where_it_says_so():
    table = SubscriptionTable()
    one = subscription("a.(b|c)x*", dialect="regex")
    one._find_by((oz.compile("a.", "zmq"),))
    table.add(one)
    assert table.route(b"a.other").subscriptions == (one,)
    assert table.route(b"b").subscriptions == ()
    table.remove(one)
    assert table.route(b"a.b").subscriptions == ()


def test_a_change_forgets_the_remembered_routes():
    table = SubscriptionTable()
    assert table.route(b"a.b").subscriptions == ()
    one = subscription("a.*")
    table.add(one)
    assert b"a.b" not in table.routes
    assert table.route(b"a.b").subscriptions == (one,)
    table.remove(one)
    assert b"a.b" not in table.routes


def test_no_more_routes_are_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(subscriptions, "CACHE_SIZE", 3)
    table = SubscriptionTable()
    for number in range(10):
        table.route(b"%d" % number)
        assert b"%d" % number in table.routes
        assert len(table.routes) <= 3


def test_what_is_not_utf_8_is_malformed_only_when_nobody_reads_bytes():
    table = SubscriptionTable()
    table.add(subscription("a.*"))
    assert table.route(b"a.\xff").is_malformed
    table.add(subscription(b"a."))
    route = table.route(b"a.\xff")
    assert not route.is_malformed
    assert (route.subject, route.is_text) == ("a.\udcff", False)


def test_reserved_subjects_come_only_to_patterns_that_name_them():
    table = SubscriptionTable()
    everything, gateways, both = (
        subscription(">"),
        subscription("_OZ.gateway.>"),
        subscription("_OZ.gateway.gap", ">"),
    )
    for one in (everything, gateways, both):
        table.add(one)
    assert set(table.route(b"_OZ.gateway.gap").subscriptions) == {gateways, both}
    assert set(table.route(b"_OZ.gateway.up").subscriptions) == {gateways}
    assert set(table.route(b"_OZone.a").subscriptions) == {everything, both}


def fields(route):
    return {name: getattr(route, name) for name in subscriptions.Route.__slots__}


def test_the_route_of_an_inbox_is_the_same_whatever_inbox_of_its_owner_was_looked_up_before():
    owner = "_INBOX." + "ab" * 16
    handled, listed = subscription(f"{owner}.>", handler=print), subscription(f"{owner}.>")
    used = SubscriptionTable(index=ReservedIndex)
    for standing in ((), (handled,), (handled, listed)):
        for one in standing:
            used.add(one)
        for inbox in (b".1", b".2", b".3"):
            found = fields(used.route(owner.encode() + inbox))
            assert found["subscriptions"] == standing
            fresh = SubscriptionTable(index=ReservedIndex)
            for one in standing:
                fresh.add(one)
            assert found == fields(fresh.route(owner.encode() + inbox))
    # Nobody else's, nor one that is not text.
    assert used.route(b"_INBOX." + b"cd" * 16 + b".1").subscriptions == ()
    assert not used.route(owner.encode() + b".\xff").is_text
    used.remove(handled)
    assert used.route(owner.encode() + b".4").subscriptions == (listed,)
