"""Nodes with keys: who comes in, who may subscribe, publish, ask and answer, and whose word is believed."""

import asyncio
import logging
import socket

import pytest
import zmq

import oz
import oz.asyncio
from oz.protocol.node.seeds import Seeds
from oz.services import ask
from support.meeting import DESK, FEED, advisories, meet
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

# who comes in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["tcp", "directory"])
def test_trusted_nodes_meet_and_talk(make, directory, way):
    if way == "tcp":
        feed = make("feed", bind="tcp://127.0.0.1:*")
        desk = make("desk", peers=feed.endpoint)
    else:
        feed, desk = (make(name, directory=directory / "bus") for name in ("feed", "desk"))
    meet(desk, feed)
    md = desk.subscribe("md.eu.>")
    feed.subscribe("svc.double", handler=lambda message: message.reply(2 * message.payload))
    desk.wait_ready(DEADLINE)
    feed.publish("md.eu.dax", 1)
    assert md.receive(DEADLINE).payload == 1
    assert desk.request("svc.double", 21, timeout=DEADLINE).payload == 42


def test_nodes_of_asyncio_meet_and_talk_and_are_told_what_is_denied(node_ring, directory):
    async def run():
        async with (
            oz.asyncio.Node(
                "feed",
                bind="tcp://127.0.0.1:*",
                directory=directory / "a",
                security=node_ring.security("feed", permissions=True),
            ) as feed,
            oz.asyncio.Node(
                "desk",
                peers=feed.endpoint,
                directory=directory / "b",
                security=node_ring.security("desk", permissions=True),
            ) as desk,
        ):
            await desk.wait_for_peers("feed", DEADLINE)
            md, denied = desk.subscribe("md.eu.>"), desk.subscribe("md.*.x")
            with pytest.raises(oz.PermissionDenied) as raised:
                await denied.receive(DEADLINE)
            assert raised.value.subject == "md.secret.x"
            denied.unsubscribe()
            await desk.wait_ready(DEADLINE)
            await feed.publish("md.eu.dax", 1)
            return (await md.receive(DEADLINE)).payload

    assert asyncio.run(run()) == 1


def test_who_is_not_trusted_is_refused_and_both_keys_are_named_on_both_sides(node_ring, make, feed, caplog):
    stranger = node_ring.make("stranger").public
    told = advisories(feed)
    with caplog.at_level(logging.WARNING):
        node = make("stranger", peers=feed.endpoint)
        with pytest.raises(oz.PermissionDenied, match="does not trust the key of this side") as raised:
            node.wait_for_peers(timeout=DEADLINE)
    assert stranger in str(raised.value)
    assert node_ring.public("feed") in str(raised.value)
    assert any(
        stranger in one.getMessage()
        and node_ring.public("feed") in one.getMessage()
        and "refused" in one.getMessage()
        for one in caplog.records
    )
    until(lambda: any(stranger in one.text for one in told()))
    assert feed.peers == []


def test_who_listens_with_a_key_that_is_not_trusted_is_not_connected_to(node_ring, make, feed):
    node_ring.make("stranger")
    node_ring.distrust("feed")
    desk = make("desk", peers=feed.endpoint)
    with pytest.raises(oz.PermissionDenied, match="has no key that this side trusts"):
        desk.wait_ready(DEADLINE)


def test_a_stranger_in_the_directory_is_told_of_and_not_waited_for(node_ring, make, directory):
    stranger = node_ring.make("stranger").public
    feed = make("feed", directory=directory / "bus")
    told = advisories(feed)
    make("stranger", directory=directory / "bus")
    until(lambda: any(f"begins with {stranger[:8]!r}" in one.text for one in told()))
    feed.wait_ready(DEADLINE)
    assert feed.peers == []


def test_a_node_without_keys_that_others_reach_warns_of_it_once(directory, caplog):
    for bind in ("tcp://127.0.0.1:*", "tcp://0.0.0.0:*"):
        with oz.Node("plain", bind=bind, directory=directory / "plain"):
            pass
    warned = [one for one in caplog.records if "this node has no keys" in one.getMessage()]
    assert len(warned) == 1
    assert "0.0.0.0" in warned[0].getMessage()


def test_a_node_with_keys_is_ready_once_the_peer_that_it_names_has_answered(make, feed, monkeypatch):
    # However long a busy machine takes to answer.
    monkeypatch.setattr(Seeds.__init__, "__defaults__", (60,))
    feed.subscribe("svc.x", handler=lambda message: message.reply(1))
    for _ in range(3):
        desk = make("desk", peers=feed.endpoint)
        desk.wait_ready(DEADLINE)
        assert desk.interest("svc.x")
        desk.close()


def test_a_node_meets_nobody_at_a_listener_without_keys_and_says_so(make):
    with zmq.Context() as context, context.socket(zmq.XPUB) as listener:
        listener.bind("tcp://127.0.0.1:*")
        desk = make("desk", peers=listener.get_string(zmq.LAST_ENDPOINT))
        with pytest.raises(oz.PermissionDenied, match="has no key at all"):
            desk.wait_for_peers(timeout=DEADLINE)


def test_a_peer_that_accepts_connections_and_says_nothing_is_named_when_it_was_waited_for_in_vain(make):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        desk = make("desk", peers=f"tcp://127.0.0.1:{mute.getsockname()[1]}")

        def is_named():
            with pytest.raises(oz.Timeout) as raised:
                desk.wait_for_peers(timeout=0.1)
            return "accepts connections and says nothing" in str(raised.value)

        until(is_named)


def test_who_calls_a_node_or_a_name_server_without_a_key_is_told_of(
    node_ring, feed, server, directory, caplog
):
    told = advisories(feed)
    with oz.Node("plain", peers=feed.endpoint, directory=directory / "plain"):
        until(lambda: any("at tcp:" in one.text and " key" in one.text for one in told()))

    def is_logged():
        # Half a second may be over before ZeroMQ has called at all.
        with pytest.raises((oz.NameserverUnavailable, oz.PermissionDenied)):
            oz.Node("lost", nameserver=server.endpoint, join_timeout=0.5, directory=directory / "lost")
        return any(server.endpoint in one.getMessage() for one in caplog.records)

    until(is_logged)


def test_a_node_that_has_not_begun_yet_holds_up_no_refusal(node_ring, caplog):
    key = node_ring.make("stranger").public
    security = node_ring.security("other")
    waiting = oz.asyncio.Node("waiting", security=security)
    stranger = node_ring.security("stranger")
    with (
        oz.Publisher("tcp://127.0.0.1:*", security=security) as publisher,
        pytest.raises(oz.PermissionDenied, match="does not trust the key of this side"),
    ):
        oz.Subscriber(publisher.endpoint, security=stranger)
    assert any(f"its key {key} is not in" in one.getMessage() for one in caplog.records)
    assert waiting.stats.advisories == 0


def test_an_endpoint_that_is_none_is_refused_when_the_node_begins(make):
    with pytest.raises(ValueError, match="nowhere"):
        make("desk", peers="nowhere")


def test_whose_key_is_not_trusted_any_more_is_gone_and_comes_back_when_it_is(node_ring, feed, desk):
    node_ring.distrust("desk")
    until(lambda: not feed.peers)
    node_ring.trust("desk")
    meet(desk, feed)


def test_whose_key_is_trusted_again_after_it_was_given_up_finds_all_of_the_bus(node_ring, make, feed):
    node_ring.permit(feed=FEED, desk=DESK, other=DESK)
    desk, other = (make(one, peers=feed.endpoint, bind="tcp://127.0.0.1:*") for one in ("desk", "other"))
    for one, others in ((feed, (desk, other)), (desk, (feed, other)), (other, (feed, desk))):
        meet(one, *others)
    node_ring.distrust("desk")
    until(lambda: not desk.peers and len(other.peers) == len(feed.peers) == 1)
    node_ring.trust("desk")
    # `wait_for_peers` raises as long as it is refused.
    until(lambda: len(desk.peers) == len(other.peers) == len(feed.peers) == 2)


def test_two_keys_of_one_user_are_valid_while_one_replaces_the_other(node_ring, make, feed, desk):
    node_ring.make("desk-2")
    node_ring.trust("desk-2")
    text = node_ring.permissions.read_text()
    key = node_ring.public("desk")
    node_ring.permissions.write_text(
        text.replace(f"key = '{key}'", f"keys = ['{key}', '{node_ring.public('desk-2')}']")
    )
    new = meet(make("desk-2", peers=feed.endpoint), feed)
    both = [subscribe_once_allowed(node, "md.eu.>") for node in (desk, new)]
    feed.publish("md.eu.dax", 1)
    assert [one.receive(DEADLINE).payload for one in both] == [1, 1]


def subscribe_once_allowed(node, pattern, **options):
    """Subscribe when the peers have read what is allowed now: they look at their files now and then."""

    def subscribe():
        subscription = node.subscribe(pattern, **options)
        try:
            node.wait_ready(DEADLINE)
        except oz.PermissionDenied:
            subscription.unsubscribe()
            return None
        return subscription

    return until(subscribe)


# who may subscribe -----------------------------------------------------------------------------------------


def test_what_may_not_be_had_is_refused_with_rule_and_witness_and_the_rest_is_not(feed, desk):
    told = advisories(desk)
    granted, denied = desk.subscribe("md.eu.>"), desk.subscribe("md.*.x")
    with pytest.raises(oz.PermissionDenied) as raised:
        denied.receive(DEADLINE)
    assert raised.value.subject == "md.secret.x"
    assert "deny subscribe 'md.secret.>'" in raised.value.rule
    with pytest.raises(oz.PermissionDenied, match=r"md\.secret\.x"):
        desk.wait_ready(DEADLINE)
    until(lambda: any("md.secret.x" in one.text for one in told()))
    denied.unsubscribe()
    desk.wait_ready(DEADLINE)
    feed.publish("md.secret.x", 0)
    feed.publish("md.eu.x", 1)
    assert granted.receive(DEADLINE).payload == 1


def test_each_of_many_that_are_denied_is_told(desk):
    for number in range(20):
        with pytest.raises(oz.PermissionDenied):
            desk.subscribe(f"other.{number}").receive(timeout=DEADLINE)


def test_groups_have_rules_of_their_own(feed, desk):
    desk.subscribe("md.us", group="work-1")
    desk.subscribe("md.eu", group="play", handler=print)
    with pytest.raises(oz.PermissionDenied, match="join a group of this name"):
        desk.wait_ready(DEADLINE)
    assert feed.interest("md.us")


# who may publish, ask and answer ---------------------------------------------------------------------------


def test_what_a_key_may_not_publish_is_dropped_counted_and_advised(feed, desk):
    told = advisories(feed)
    orders, notes = feed.subscribe("orders.>"), feed.subscribe("md.>")
    feed.wait_ready(DEADLINE)
    desk.publish("orders.1", "forged")
    desk.publish("md.eu", "forged")
    until(lambda: feed.stats.denied == 2)
    until(lambda: any("orders.1" in one.text or "md.eu" in one.text for one in told()))
    assert orders.waiting == notes.waiting == 0


def test_who_may_publish_may_not_ask(feed, desk):
    asked = []
    feed.subscribe("notes.>", handler=asked.append)
    feed.wait_ready(DEADLINE)
    with pytest.raises(oz.Timeout):
        desk.request("notes.1", 1, timeout=0.2)
    desk.publish("notes.1", "published")
    until(lambda: [one.payload for one in asked] == ["published"])


def test_replies_need_a_right_and_come_as_often_as_it_says(feed, desk):
    def twice(message):
        message.reply(1)
        message.reply(2)

    feed.subscribe("svc.>", handler=twice)
    feed.wait_ready(DEADLINE)
    answers = desk.request_many("svc.x", 0, timeout=0.5)
    assert [one.payload for one in answers] == [1]
    assert desk.stats.denied == 1


def test_who_may_not_reply_is_not_heard(feed, desk):
    desk.subscribe("svc.>", handler=lambda message: message.reply("forged"))
    desk.wait_ready(DEADLINE)
    with pytest.raises(oz.Timeout):
        feed.request("svc.x", 1, timeout=0.2)
    assert feed.stats.denied == 1


# name servers ----------------------------------------------------------------------------------------------


def test_nodes_find_each_other_by_a_name_server_with_keys(node_ring, make, server):
    feed, desk = (
        make(name, nameserver=server.endpoint, bind="tcp://127.0.0.1:*") for name in ("feed", "desk")
    )
    meet(desk, feed)
    there = ask(server.endpoint, security=node_ring.security("other"))
    assert {one.name: one.key for one in there} == {one: node_ring.public(one) for one in ("feed", "desk")}


def test_a_name_server_that_refuses_a_key_is_told_of_at_once(node_ring, make, server):
    node_ring.make("stranger")
    with pytest.raises(oz.PermissionDenied, match="does not trust the key of this side"):
        make("stranger", nameserver=server.endpoint)
    with pytest.raises(oz.PermissionDenied):
        ask(server.endpoint, security=node_ring.security("stranger"))
    with pytest.raises(oz.NameserverUnavailable):
        ask(server.endpoint, timeout=0.3)
