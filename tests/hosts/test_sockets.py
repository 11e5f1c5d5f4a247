"""Publishers and subscribers on several hosts: each message is delivered or reported lost."""

import time

import pytest

from hosts.stage import accounted
from support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

PACE = 0.01
WELL_AFTER = 30.0
"""Seconds after a partition until messages come again. It is the system that sends again what was not
acknowledged, after ever longer pauses; after 45 s the subscriber gives the connection up."""


@pytest.fixture
def play(hosts, stage):
    """A publisher, and two subscribers that have it filter; they begin."""
    first, *others = hosts
    publisher = stage.actor(first, "Publisher", bind=f"tcp://{first.address}:5000")
    subscribers = [stage.actor(host, "Subscriber", connect=f"tcp://{first.address}:5000") for host in others]

    def play(size=0, most=None):
        for subscriber, pattern in zip(subscribers, ("*.sap", "quote.>"), strict=True):
            subscriber.listen(pattern)
        publisher.begin(["quote.sap", "noise.ibm"], PACE, size, most)
        return publisher, subscribers

    return play


def has_come(subscriber, more, within=60.0):
    """Wait until a number of messages more than now were delivered."""
    before = subscriber.got()["delivered"]
    until(lambda: subscriber.got()["delivered"] >= before + more, within)


def end(publisher, subscribers):
    """End it; give what the subscribers got, of as much as was published for each."""
    sent = publisher.end()["quote.sap"]
    return sent, [accounted(one, sent) for one in subscribers]


def test_with_1_percent_loss_all_that_matches_is_delivered(hosts, play):
    for host in hosts:
        host.lose(1, "tcp")
    publisher, subscribers = play()
    for one in subscribers:
        has_come(one, 1000)
    sent, got = end(publisher, subscribers)
    assert [one["delivered"] for one in got] == [sent, sent]
    assert any(host.packets()["lost"] for host in hosts)


@pytest.fixture
def narrow(network, hosts):
    network.narrow(hosts[1], 576)


@pytest.mark.usefixtures("narrow")
def test_messages_larger_than_a_small_mtu_arrive(play):
    # A fixed number, because a busy machine would publish thousands before the first arrives.
    publisher, subscribers = play(size=20_000, most=300)
    assert [accounted(one, 300)["delivered"] for one in subscribers] == [300, 300]
    publisher.end()


@pytest.mark.parametrize("seconds", [10, 60])
def test_after_a_partition_a_subscriber_has_all_or_knows_what_is_missing(network, hosts, play, seconds):
    publisher, (stays, parts) = play()
    has_come(parts, 100)
    network.cut(hosts[2])
    time.sleep(seconds)
    before = parts.got()["latest"]
    network.mend(hosts[2])
    began = time.monotonic()
    until(lambda: parts.got()["latest"] > before, WELL_AFTER)
    print(f"{seconds} s: the next message came {time.monotonic() - began:.1f} s after")
    has_come(parts, 100)
    sent, (whole, part) = end(publisher, [stays, parts])
    assert whole["delivered"] == sent
    print(part)
