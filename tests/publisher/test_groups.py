"""Queue groups over real links."""

from collections import Counter
from functools import partial

import pytest


def publish(publisher, count, **more):
    for number in range(count):
        publisher.publish(f"a.{number}", b"%d" % number, **more)
    publisher.flush()


def receive_all(peers, count):
    for peer in peers:
        peer.until(partial(is_complete, peers, count, peer))


def is_complete(peers, count, turning):
    for peer in peers:
        if peer is not turning:
            peer.turn(0)
    return sum(len(peer.messages) for peer in peers) >= count


@pytest.mark.parametrize("policy", ["round_robin", "sticky", "failover"])
def test_each_message_reaches_one_member(make, join, policy):
    publisher = make()
    peers = [join(publisher, "a.*", group="g", policy=policy) for _ in range(3)]
    publish(publisher, 900)
    receive_all(peers, 900)
    counts = [len(peer.messages) for peer in peers]
    assert sorted(payload for peer in peers for payload in peer.payloads) == sorted(
        b"%d" % number for number in range(900)
    )
    if policy == "failover":
        assert counts == [900, 0, 0]
    else:
        assert min(counts) > 200


def test_a_sticky_key_stays_with_one_member(make, join):
    publisher = make()
    peers = [join(publisher, "a.*", group="g", policy="sticky") for _ in range(3)]
    for key in range(30):
        publish(publisher, 10, key=f"key {key}", headers={"key": key})
    receive_all(peers, 300)
    owners = [{extras["headers"]["key"] for _, _, extras in peer.messages} for peer in peers]
    assert sum(map(len, owners)) == 30


def test_a_member_with_another_policy_is_refused(make, join):
    publisher = make()
    join(publisher, "a.*", group="g")
    other = join(publisher, "a.*", group="g", policy="failover")
    assert ["round_robin" in refusal.reason for refusal in other.refused] == [True]


def test_messages_of_a_member_that_dies_move_to_others(make, join):
    publisher = make()
    options = {"group": "g", "handled": True, "redeliver": True}
    dying, living = join(publisher, "a.*", **options), join(publisher, "a.*", **options)
    dying.is_handling = False
    publish(publisher, 40)
    receive_all([dying, living], 40)
    dying.close()
    living.until(lambda: len(living.messages) >= 40)
    assert Counter(living.payloads) == Counter(b"%d" % number for number in range(40))
    assert sorted(living.redelivered) == sorted(dying.payloads)
    assert living.gaps == []
    assert publisher.stats.redelivered == len(dying.payloads)


def test_messages_of_a_member_that_leaves_move_at_once(make, join):
    publisher = make()
    options = {"group": "g", "handled": True, "redeliver": True}
    leaving, staying = join(publisher, "a.*", **options), join(publisher, "a.*", **options)
    leaving.is_handling = False
    publish(publisher, 20)
    receive_all([leaving, staying], 20)
    leaving.leave()
    staying.until(lambda: len(staying.messages) >= 20)
    assert len(staying.redelivered) == 10


def test_messages_wait_for_a_group_without_connection(make, join):
    publisher = make()
    peer = join(publisher, "a.*", group="g")
    peer.close()
    member = join(publisher, "b", group="g")
    member.until(lambda: "down" in {one.state for one in publisher.subscribers})
    publish(publisher, 5)
    assert publisher.stats.sent == 5
    assert {one.pending for one in publisher.subscribers} == {5, 0}
