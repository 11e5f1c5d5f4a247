"""Several forwarders, several buses, queue groups across them, and forwarders that die."""

import os
import signal
from collections import Counter
from contextlib import contextmanager

import pytest

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
