"""A forwarder joins the buses of two hosts over links that lose and are cut."""

import time

import pytest

from hosts.stage import accounted
from support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

WELL_WITHIN = 30.0


@pytest.fixture
def joined(hosts, stage):
    """A node on each of two buses; between them a third host with a forwarder, and a name server for each."""
    near, between, far = hosts
    servers = {bus: f"tcp://{between.address}:{port}" for bus, port in (("near", 5756), ("far", 5766))}
    for endpoint in servers.values():
        stage.command(between, "nameserver", "--bind", endpoint)
    legs = [f"bus={bus},connect={endpoint}" for bus, endpoint in servers.items()]
    stage.command(between, "forwarder", "--leg", legs[0], "--leg", legs[1])
    one = stage.actor(near, "Node", name="one", bus="near", connect=servers["near"])
    two = stage.actor(far, "Node", name="two", bus="far", connect=servers["far"])
    two.listen("quote.*")
    two.serve("service")
    until(lambda: one.interest("quote.sap") and one.interest("service"))
    return one, two


def answered(node, within=WELL_WITHIN):
    """Ask until there is an answer; each answer or error comes in its time."""

    def asked():
        said, took = node.request("service", 5.0)
        assert took < 6
        return said == "two"

    until(asked, within)


def test_with_1_percent_loss_all_crosses_and_requests_are_answered(hosts, joined):
    for host in hosts:
        host.lose(1, "tcp")
    one, two = joined
    answered(one)
    one.begin(["quote.sap", "noise.ibm"], 0.01)
    until(lambda: two.got()["delivered"] >= 1000)
    sent = one.end()["quote.sap"]
    until(lambda: two.got()["delivered"] == sent)
    assert two.got()["disorder"] == two.got()["uncounted"] == 0


def test_after_a_partition_messages_and_requests_cross_again_and_the_loss_is_told(network, hosts, joined):
    one, two = joined
    one.begin(["quote.sap", "noise.ibm"], 0.01)
    until(lambda: two.got()["delivered"] >= 100)
    network.cut(hosts[2])
    began = time.monotonic()
    while time.monotonic() < began + 60:
        said, took = one.request("service", 2.0)
        assert said in ("Timeout", "NoResponders")
        assert took < 3
    before = two.got()["latest"]
    network.mend(hosts[2])
    began = time.monotonic()
    answered(one)
    until(lambda: two.got()["latest"] > before, WELL_WITHIN)
    print(f"well after {time.monotonic() - began:.1f} s")
    before = two.got()["latest"]
    until(lambda: two.got()["latest"] > before + 200)
    got = accounted(two, one.end()["quote.sap"])
    print(got)
