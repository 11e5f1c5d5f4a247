"""Several forwarders, several buses, queue groups across them, and forwarders that die."""

import os
import signal
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from oz.protocol.bridge import spanning_tree
from support.inside import takes_nobody_for_late
from support.joined import Buses, payloads, up_to, wait_for_interest, wants
from support.sizes import in_suite
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.timeout(180)

MANY = 200


@contextmanager
def ending(forwarder):
    """End a forwarder in order."""
    try:
        yield forwarder
    finally:
        forwarder.stop()
        forwarder.close()


@pytest.fixture
def buses():
    with Buses() as made:
        yield made


def numbers(count=MANY):
    return [b"%d" % number for number in range(count)]


def publish_numbers(node, subject, count=MANY):
    for payload in numbers(count):
        node.publish(subject, payload)
    node.flush()


def total(forwarders, counter):
    return sum(getattr(one.stats, counter) for one in forwarders)


def check_once(forwarders, publishing, subscription, subject="a.b", hops=1):
    """What is published arrives once and in order, and forwarders passed on so many of each and no more."""
    expected = total(forwarders, "passed") + hops * (MANY + 2)
    publish_numbers(publishing, subject)
    publishing.publish(subject, b"end")
    assert up_to(subscription, b"end") == numbers()
    publishing.publish(subject, b"really the end")
    assert payloads(subscription, 1) == [b"really the end"]
    # They count once they have passed it on.
    until(lambda: not forwarders or total(forwarders, "passed") >= expected)
    assert not forwarders or total(forwarders, "passed") == expected
    assert total(forwarders, "looped") == 0


def test_a_chain_of_buses(buses):
    forwarders = [buses.forwarder("one", "two"), buses.forwarder("two", "three")]
    first, last = buses.node("one"), buses.node("three")
    wanted = last.subscribe("*.b")
    last.subscribe("ask", handler=lambda message: message.reply(b"far away"))
    wait_for_interest(first, "a.b", "ask")
    check_once(forwarders, first, wanted, hops=2)
    assert first.request("ask", timeout=DEADLINE).payload == b"far away"


def test_one_forwarder_for_three_buses(buses):
    forwarder = buses.forwarder("one", "two", "three")
    first, second, third = (buses.node(bus) for bus in ("one", "two", "three"))
    wanted = [node.subscribe("*.b") for node in (second, third)]
    wait_for_interest(first, "a.b")
    until(lambda: wants(second, "a.b") and len(forwarder.legs[1].ledger.interests) > 1)
    until(lambda: all(len(leg.ledger.interests) > 1 for leg in forwarder.legs[1:]))
    publish_numbers(first, "a.b")
    for one in wanted:
        assert payloads(one, MANY) == numbers()
    assert forwarder.stats.received == MANY
    assert until(lambda: forwarder.stats.passed == 2 * MANY)


@pytest.mark.parametrize("count", in_suite([3], [2]))
def test_forwarders_in_parallel_deliver_once(buses, count):
    near, far = buses.node("lan"), buses.node("wan")
    forwarders = [buses.forwarder("lan", "wan", settled=False) for _ in range(count)]
    until(lambda: all(one.is_settled for one in forwarders))
    until(lambda: sum(one.states == ["open", "open"] for one in forwarders) == 1)
    wanted = far.subscribe("a.>")
    back = near.subscribe("z.>")
    wait_for_interest(near, "a.b")
    wait_for_interest(far, "z.b")
    check_once(forwarders, near, wanted)
    check_once(forwarders, far, back, "z.b")
    far.subscribe("ask", handler=lambda message: message.reply(b"once"))
    wait_for_interest(near, "ask")
    assert [one.payload for one in near.request_many("ask", timeout=5)] == [b"once"]


def test_interests_of_parallel_forwarders_do_not_keep_each_other_alive(buses):
    near, far = buses.node("lan"), buses.node("wan")
    for _ in range(2):
        buses.forwarder("lan", "wan")
    wanted = far.subscribe("a.b")
    wait_for_interest(near, "a.b")
    wanted.unsubscribe()
    wait_for_interest(near, "a.b", gone=True)
    wait_for_interest(far, "a.b", gone=True)


def test_a_ring_of_three_buses(buses):
    ring = ("one", "two", "three")
    forwarders = [buses.forwarder(ring[at], ring[at - 1], settled=False) for at in range(3)]
    until(lambda: all(one.is_settled for one in forwarders))
    until(lambda: sum(one.states.count("open") for one in forwarders) == 5)
    nodes = [buses.node(bus) for bus in ring]
    wanted = [node.subscribe(f"to.{bus}.>") for bus, node in zip(ring, nodes, strict=True)]
    # Of a ring of three one link is closed: what would go over it takes the long way.
    closed = next(one for one in forwarders if "standing by" in one.states)
    far_apart = {leg.engine.bus for leg in closed.legs}
    for bus, subscription in zip(ring, wanted, strict=True):
        for other, node in zip(ring, nodes, strict=True):
            wait_for_interest(node, f"to.{bus}.x")
            hops = 0 if bus == other else 2 if {bus, other} == far_apart else 1
            check_once(forwarders, node, subscription, f"to.{bus}.x", hops)


def test_a_message_does_not_go_round_while_forwarders_disagree(buses, monkeypatch):
    """Such as when the link between two of them is cut: then both pass messages."""
    settle = spanning_tree.settle

    def all_open(rank, heard):
        return settle(rank, heard)._replace(is_open=(True, True))

    monkeypatch.setattr(spanning_tree, "settle", all_open)
    near, far = buses.node("lan", echo=False), buses.node("wan")
    forwarders = [buses.forwarder("lan", "wan") for _ in range(2)]
    far.subscribe("a.b")
    near.subscribe("a.b")
    count = 0

    def goes_round():
        nonlocal count
        count += 1
        near.publish("a.b", b"one")
        return all(one.stats.looped for one in forwarders)

    until(goes_round)
    # To both, from each to the other, and back to where it was: no farther.
    most = 6 * count
    until(lambda: total(forwarders, "received") >= 6)
    far.subscribe("ask", handler=lambda message: message.reply(b"done"))
    wait_for_interest(near, "ask")
    near.request("ask", timeout=DEADLINE)
    assert sum(leg.stats.received for one in forwarders for leg in one.legs) <= most + 16


def test_a_group_on_both_buses_handles_each_message_once(buses):
    near, far = buses.node("lan"), buses.node("wan")
    forwarder = buses.forwarder("lan", "wan")
    handled, everything = Counter(), far.subscribe("job.>")
    members = [buses.node(bus) for bus in ("lan", "lan", "wan", "wan")]
    counts = [Counter() for _ in members]
    for member, count in zip(members, counts, strict=True):

        def handle(message, count=count):
            count[message.payload] += 1
            handled[message.payload] += 1

        member.subscribe("job.*", handler=handle, group="workers")
    for leg in forwarder.legs:
        until(lambda leg=leg: any(group for _, group in leg.ledger.interests))
    for node in (near, far):
        node.wait_ready(DEADLINE)
        until(lambda node=node: wants(node, "job.x"))

    # Each publisher and the forwarder know of every member once it has had something.
    def everybody_works():
        near.publish("job.warm", b"warm")
        far.publish("job.warm", b"warm")
        return all(counts)

    until(everybody_works)
    publish_numbers(near, "job.x")
    publish_numbers(far, "job.y")
    until(lambda: sum(handled[payload] for payload in numbers()) == 2 * MANY)
    got = []
    while len(got) < 2 * MANY:
        got += [one for one in payloads(everything, 1) if one != b"warm"]
    assert Counter(got) == Counter(numbers() + numbers())
    assert all(handled[payload] == 2 for payload in numbers())


def test_a_group_behind_three_legs_handles_each_message_once(buses):
    first = buses.node("one")
    forwarder = buses.forwarder("one", "two", "three")
    handled = Counter()
    places = []
    for bus in ("two", "three"):
        member = buses.node(bus)
        member.subscribe(
            "job",
            handler=lambda message, bus=bus: (handled.update([message.payload]), places.append(bus)),
            group="workers",
        )
    until(lambda: all(any(group for _, group in leg.ledger.interests) for leg in forwarder.legs[1:]))
    wait_for_interest(first, "job")
    publish_numbers(first, "job")
    until(lambda: sum(handled.values()) >= MANY)
    assert handled == Counter(numbers())
    assert set(places) == {"two", "three"}


def test_a_forwarder_that_is_killed_is_replaced_by_the_one_that_stands_by(buses):
    near, far = buses.node("lan"), buses.node("wan")
    gaps, wanted = far.subscribe("_OZ.ADVISORY.*.GAP"), far.subscribe("a.*")
    with buses.process("lan", "wan") as process:
        assert process.said.count("open") == 2
        second = buses.forwarder("lan", "wan")
        assert "standing by" in second.states
        wait_for_interest(near, "a.b")
        check_once([second], near, wanted, hops=0)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(DEADLINE)
    until(lambda: second.states == ["open", "open"])
    # This can only be known from the second one, and was declared after the other.
    far.subscribe("probe")
    wait_for_interest(near, "probe")
    check_once([second], near, wanted)
    assert second.stats.takeovers == 1
    # What fell between the two is lost, and that is said.
    assert gaps.receive(DEADLINE).payload.count is None


def until_told(gaps):
    """Wait until it is told that nobody knows how many are missing; give of whom."""
    while (told := gaps.receive(DEADLINE).payload).count is not None:
        pass
    return told.about


@pytest.mark.parametrize("hops", in_suite([2], [1]))
def test_a_forwarder_that_is_killed_and_restarted_goes_on_and_the_loss_is_told(buses, hops):
    """Whoever is behind another forwarder knows nothing of the one that is killed."""
    near, far = buses.node("lan"), buses.node("wan" if hops == 1 else "far")
    if hops == 2:
        last = buses.forwarder("wan", "far", name="last")
        # Or it takes the one that begins next for a peer whose messages it may have missed.
        until(lambda: takes_nobody_for_late(last))
    gaps, wanted = far.subscribe("_OZ.ADVISORY.*.GAP"), far.subscribe("a.*")
    for life in range(2):
        with buses.process("lan", "wan") as process:
            wait_for_interest(near, "a.b")
            assert life or not gaps.waiting
            check_once([], near, wanted)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(DEADLINE)
        assert until_told(gaps).startswith("forwarder" if hops == 1 else "last")
        wait_for_interest(near, "a.b", gone=True)
        assert [one.name for one in far.peers if one.name == "last"] == ["last"] * (hops - 1)


def test_after_an_orderly_end_the_next_forwarder_is_known_to_have_missed_some(buses):
    near, far = buses.node("lan"), buses.node("wan")
    gaps, wanted = far.subscribe("_OZ.ADVISORY.*.GAP"), far.subscribe("a.*")
    with ending(buses.forwarder("lan", "wan")):
        wait_for_interest(near, "a.b")
        check_once([], near, wanted)
    wait_for_interest(near, "a.b", gone=True)
    assert not gaps.waiting
    near.publish("a.b", b"nobody passes this on")
    buses.forwarder("lan", "wan", name="next")
    assert until_told(gaps) == "next"
    wait_for_interest(near, "a.b")
    check_once([], near, wanted)


def test_what_a_forwarder_has_taken_in_it_passes_on_before_it_ends(buses):
    near, far = buses.node("lan", high_water_mark=100_000), buses.node("wan")
    wanted, back = far.subscribe("a.*"), near.subscribe("z.*")
    with ending(buses.forwarder("lan", "wan")):
        wait_for_interest(near, "a.b")
        wait_for_interest(far, "z.b")
        publish_numbers(near, "a.b", 5_000)
        publish_numbers(far, "z.b", 5_000)
    assert payloads(wanted, 5_000) == numbers(5_000)
    assert payloads(back, 5_000) == numbers(5_000)


def test_a_forwarder_that_ends_hands_over_to_the_one_that_stands_by(buses):
    near, far = buses.node("lan"), buses.node("wan")
    gaps, wanted = far.subscribe("_OZ.ADVISORY.*.GAP"), far.subscribe("a.*")
    with ending(buses.forwarder("lan", "wan")):
        second = buses.forwarder("lan", "wan")
        assert "standing by" in second.states
        wait_for_interest(near, "a.b")
    until(lambda: second.states == ["open", "open"])
    until_told(gaps)
    far.subscribe("probe")
    wait_for_interest(near, "probe")
    check_once([second], near, wanted)


def test_a_forwarder_that_stands_still_is_replaced_while_it_does(buses):
    near, far = buses.node("lan"), buses.node("wan")
    gaps, wanted = far.subscribe("_OZ.ADVISORY.*.GAP"), far.subscribe("a.*")
    with buses.process("lan", "wan") as process:
        second = buses.forwarder("lan", "wan")
        assert "standing by" in second.states
        wait_for_interest(near, "a.b")
        # If it stood still before it knows of the other, nobody would have gone on for it.
        assert process.stdout.readline() == "another stands by\n"
        process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: second.states == ["open", "open"])
            until_told(gaps)
            far.subscribe("probe")
            until(lambda: any(str(one.text) == "probe" for one, _ in second.legs[1].ledger.interests))
            near.wait_ready(DEADLINE)

            def passes():
                near.publish("probe", b"")
                near.publish("a.b", b"one")
                return wanted.waiting

            until(passes)
        finally:
            process.send_signal(signal.SIGCONT)
        # What had come to it meanwhile would come twice: now it is the one that stands by.
        assert "stood still" in process.stderr.readline()
        until(lambda: all(leg.ledger.offers for leg in second.legs))
        until(lambda: second.states == ["open", "open"])
        wanted.unsubscribe()
        again = far.subscribe("a.*")
        wait_for_interest(near, "a.b")
        check_once([], near, again)


def test_forwarders_side_by_side_do_not_tell_each_other_of_losses_without_end(buses):
    forwarder = buses.forwarder("lan", "wan")
    leg = forwarder.legs[0]
    told = []
    leg.engine.sockets.main.engine.report_loss = told.append
    until(lambda: time.monotonic() - leg.losses.reported_at >= 1.0)
    for _ in range(100):
        leg.report_loss(None, time.monotonic())
    leg.report_loss(3, time.monotonic())
    for _ in range(100):
        # What another one tells with a count goes round as well.
        leg.report_loss(5, time.monotonic(), is_hearsay=True)
    until(lambda: len(told) == 3)
    assert told == [None, 3, None]


def test_the_command_ends_in_order_on_sigterm(buses):
    near, far = buses.node("lan"), buses.node("wan")
    wanted = far.subscribe("a.*")
    with buses.process("lan", "wan") as process:
        assert "open on bus lan, open on bus wan" in process.said
        wait_for_interest(near, "a.b")
        near.publish("a.b", b"one")
        assert payloads(wanted, 1) == [b"one"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    assert not out
    assert "1 messages of 3 bytes came and 1 were passed on" in err
    # Its goodbye was heard.
    wait_for_interest(near, "a.b", gone=True)
