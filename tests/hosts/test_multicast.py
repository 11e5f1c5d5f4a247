"""Multicast between distant hosts: each message is delivered or reported lost."""

import re
from pathlib import Path

import pytest

from multicast import needs, playing
from support.network import run

pytestmark = [needs.pgm, pytest.mark.heavy, pytest.mark.timeout(400)]

PACE = 0.005
PAGE = Path(__file__).parents[2] / "docs" / "multicast.md"
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
    for item in got:
        print({name: item[name] for name in ("delivered", "lost", "reconnects")}, "of", sent["sent"])
        playing.check([sent], item)
    return sent["sent"], got


def test_over_a_small_mtu_all_arrives_in_packets_that_fit(network, hosts):
    for host in hosts:
        network.narrow(host, 576)
    sent, got = play(network, mtu=576, stale_after=30.0)
    assert [item["delivered"] for item in got] == [sent, sent]


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
    assert all(item["delivered"] > 0.99 * sent for item in got)
    assert all(host.packets()["lost_data"] and host.packets()["repairs"] for host in hosts[1:])
