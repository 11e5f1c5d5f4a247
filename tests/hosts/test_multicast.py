"""Multicast between distant hosts: each message is delivered or reported lost."""

import re
import time
from pathlib import Path

import pytest

from multicast import needs, playing
from support.network import run

pytestmark = [needs.pgm, pytest.mark.heavy, pytest.mark.timeout(400)]

PACE = 0.005
PAGE = Path(__file__).parents[2] / "docs" / "multicast-deploying.md"
CLOSED = """
    add table inet filter
    add chain inet filter input { type filter hook input priority 0; policy drop; }
"""


def play(network, during=bool, *, count=2000, **options):
    """Run a publisher and two subscribers; check and return their counts."""
    hosts = network.hosts
    with playing.scene(network) as stage:
        subscribers = [stage.subscriber(host, **options) for host in hosts[1:]]
        publisher = stage.publisher(hosts[0], count=count, pace=PACE, **options)
        publisher.go()
        during()
        sent = publisher.result()
        for host in hosts:
            host.lose(0)
        got = [stage.outcome(subscriber, [sent]) for subscriber in subscribers]
    for one in got:
        print({name: one[name] for name in ("delivered", "lost", "reconnects")}, "of", sent["sent"])
        playing.check([sent], one)
    return sent["sent"], got


def test_20_ms_apart_nothing_is_lost(network, hosts):
    sent, got = play(network, stale_after=30.0)
    assert [one["delivered"] for one in got] == [sent, sent]


def test_with_1_percent_loss_nearly_all_is_repaired(network, hosts):
    for host in hosts:
        host.lose(1)
    sent, got = play(network, stale_after=30.0)
    assert all(one["delivered"] > 0.99 * sent for one in got)
    assert all(host.packets()["lost_data"] for host in hosts[1:])


def test_over_a_small_mtu_all_arrives_in_packets_that_fit(network, hosts):
    for host in hosts:
        network.narrow(host, 576)
    sent, got = play(network, mtu=576, stale_after=30.0)
    assert [one["delivered"] for one in got] == [sent, sent]


@pytest.fixture
def firewalls(hosts):
    """Each host lets in nothing but what the page says."""
    rules = re.findall("^nft (add rule inet filter input .*?) *(?:#.*)?$", PAGE.read_text(), re.MULTILINE)
    assert rules
    text = "\n".join([CLOSED, *rules]).replace("192.0.2.0/24", "10.77.0.0/24")
    for host in hosts:
        run(*host.command("nft", "-f", "-"), text=text)
    yield
    for host in hosts:
        run(*host.command("nft", "delete", "table", "inet", "filter"))


@pytest.mark.usefixtures("firewalls")
def test_messages_and_repairs_pass_the_firewall_of_the_page(network, hosts):
    for host in hosts[1:]:
        host.lose(5)
    sent, got = play(network, stale_after=30.0)
    assert all(one["delivered"] > 0.99 * sent for one in got)
    assert all(host.packets()["lost_data"] and host.packets()["repairs"] for host in hosts[1:])


def test_a_partition_of_a_minute_is_reported_and_ends_by_itself(network, hosts):
    def part():
        time.sleep(2)
        network.cut(hosts[2])
        time.sleep(60)
        network.mend(hosts[2])

    sent, (stays, parts) = play(network, part, count=20_000)
    assert stays["delivered"] > 0.9 * sent
    assert parts["lost"] > 1_000
    # It came back by itself, before the last 20 s or so.
    assert parts["delivered"] > 2_000
