"""Scenes of multicast on a network of namespaces.

Each function plays on hosts of the network and returns one `Row` for each subscriber. `playing.check` holds for each
row: each message was delivered or reported lost.
"""

import time
from dataclasses import dataclass

from multicast.playing import check, scene
from support.waiting import until

PACE = 0.001  # seconds between messages


@dataclass
class Row:
    """Outcome of a scene at one subscriber, counted from its first message."""

    scene: str
    sent: int
    delivered: int
    lost: int
    lost_packets: int
    repairs: int
    malformed: int
    reconnects: int
    uncounted: int

    @classmethod
    def of(cls, what, sent, got, host, *, may_be_uncounted=False):
        check(sent, got, joins_late="late" in what, may_be_uncounted=may_be_uncounted)
        first = {item["name"]: item["first"] for item in got["publishers"]}
        packets = host.packets()
        return cls(
            what,
            sum(item["sent"] - first[item["name"]] for item in sent),
            got["delivered"],
            got["lost"],
            packets["lost_data"],
            packets["repairs"],
            got["malformed"],
            got["reconnects"],
            got["unknown"],
        )


def rows_of(what, stage, subscribers, sent, hosts, **options):
    pairs = zip(subscribers, hosts, strict=True)
    return [
        Row.of(what, sent, stage.outcome(subscriber, sent), host, **options) for subscriber, host in pairs
    ]


def losses(network, count):
    """Random loss, with another share for each of four hosts."""
    publisher_host, *hosts = network.fresh(4)
    percents = (0, 1, 5, 20)
    for host, percent in zip(hosts, percents, strict=True):
        host.lose(percent)
    with scene(network) as stage:
        subscribers = [stage.subscriber(host, deadline=900) for host in hosts]
        sent = stage.run(publisher_host, count=count, pace=PACE, on_full="block", within=900)
        return rows_of("0, 1, 5 and 20% loss", stage, subscribers, [sent], hosts)


def outages(network):
    """No packet arrives for 2 or for 10 seconds."""
    publisher_host, *hosts = network.fresh(4)
    short, long, quick, _ = hosts
    with scene(network) as stage:
        options = [{}, {}, {"stale_after": 1.5}, {}]
        subscribers = [stage.subscriber(host, **some) for host, some in zip(hosts, options, strict=True)]
        publisher = stage.publisher(publisher_host, count=1_000, pace=PACE, goes_on=True)
        publisher.go()
        time.sleep(1)
        for host in (short, long, quick):
            host.lose(100)
        time.sleep(2)
        short.lose(0)
        time.sleep(8)
        long.lose(0)
        quick.lose(0)
        time.sleep(12)  # until the subscribers receive again
        publisher.go()
        return rows_of("outage", stage, subscribers, [publisher.result()], hosts)


def restarts(network):
    """Late and restarted subscribers, and a restarted publisher, with 2% loss."""
    publisher_host, restarted, late, whole = network.fresh(3)
    for host in (restarted, late, whole):
        host.lose(2)
    with scene(network) as stage:
        stays, dies = stage.subscriber(whole), stage.subscriber(restarted)
        publisher = stage.publisher(
            publisher_host, count=1000, pace=PACE, name="one", closing=5.0, goes_on=True
        )
        publisher.go()
        time.sleep(1.5)
        dies.kill()
        joined = [stage.subscriber(late), stage.subscriber(restarted)]
        time.sleep(4)
        publisher.go()
        first = publisher.result()
        rows = rows_of("late", stage, joined, [first], [late, restarted])
        publisher.close()
        second = stage.run(publisher_host, count=2000, pace=PACE, name="two")
        return [*rows, *rows_of("restarted publisher", stage, [stays], [first, second], [whole])]


def closing(network, count=2000):
    """A publisher closes after its last message, with 5% loss."""
    publisher_host, *hosts = network.fresh(2)
    for host in hosts:
        host.lose(5)
    with scene(network) as stage:
        subscribers = [stage.subscriber(host) for host in hosts]
        publisher = stage.publisher(publisher_host, count=count, pace=PACE, closing=5.0)
        publisher.go()
        publisher.go()
        return rows_of("close()", stage, subscribers, [publisher.result()], hosts)


def missed_beginning(network, count=3000):
    """A subscriber has joined, and the first packets of a publisher are lost."""
    publisher_host, host = network.fresh(1)
    host.lose(100)
    with scene(network) as stage:
        publisher = stage.publisher(publisher_host, count=count, pace=PACE, on_full="block", closing=5.0)
        subscriber = stage.subscriber(host, naps=True)
        publisher.go()
        publisher.go()
        until(lambda: host.packets()["lost_data"] > 10)
        host.lose(0)
        sent = [publisher.result()]
        return rows_of("late beginning", stage, [subscriber], sent, [host], may_be_uncounted=True)


def unheard_close(network, count=2000):
    """A publisher closes during an outage."""
    publisher_host, *hosts = network.fresh(2)
    with scene(network) as stage:
        subscribers = [stage.subscriber(host, naps=True) for host in hosts]
        publisher = stage.publisher(publisher_host, count=count, pace=PACE, closing=5.0)
        publisher.go()
        time.sleep(1)
        for host in hosts:
            host.lose(100)
        sent = [publisher.result()]
        publisher.close()
        for host in hosts:
            host.lose(0)
        return rows_of("close() in an outage", stage, subscribers, sent, hosts, may_be_uncounted=True)


def killed_publisher(network):
    """A publisher is killed, so that its last message is unknown, and another one takes its place."""
    publisher_host, host = network.fresh(1)
    with scene(network) as stage:
        subscriber = stage.subscriber(host)
        dies = stage.publisher(publisher_host, count=60_000, pace=PACE, name="one")
        dies.go()
        time.sleep(2)
        dies.kill()
        sent = stage.run(publisher_host, count=1000, pace=PACE, name="two")
        got = stage.outcome(subscriber, [sent])
    got["publishers"], found = [], got["publishers"]
    for row in found:
        assert row["wrong"] == row["double"] == 0
        if row["name"] == "two":
            got["publishers"].append(row)
        else:
            got["received"] -= row["delivered"]
            got["delivered"] -= row["delivered"]
            got["lost"] -= row["lost"]
    return [Row.of("successor of a killed publisher", [sent], got, host)]
