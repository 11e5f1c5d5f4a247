"""What multicast is put through, on a network of namespaces.

`PYTHONPATH=tests python -m multicast.scenes` plays all, or those that are named, and prints the table of
docs/multicast.md.

Each function plays on hosts that it is given, and gives rows: the scene, what was sent since the subscriber
came, what it delivered, what a plain socket of ZeroMQ beside it did, or the one that it began with, the data
packets that were lost on the way to them, the repairs that came, and what it reported lost. Each checks the
law, by `playing.check`.
"""

import sys
import time

from multicast.outages import lone_outages, outages, planned_outages, slow_outage, starved_publisher
from multicast.playing import scene
from multicast.rows import HEADER, PACE, RATE, Row
from support.network import Network, missing
from support.waiting import until


def no_loss(network, count=3000):
    """Nothing is lost on the way, and a machine that is busy for a while is no outage: all is delivered."""
    publisher_host, *hosts = network.fresh(2)
    with scene(network) as stage:
        subscribers = [stage.both(host) for host in hosts]
        sent = stage.run(publisher_host, count=count, pace=PACE, on_full="block")
        return [
            Row.of("no loss", [sent], stage.outcome(subscriber, [sent]), host)
            for subscriber, host in zip(subscribers, hosts, strict=True)
        ]


def losses(network, count=3000):
    """Random loss, another on the way to each of four hosts."""
    publisher_host, *hosts = network.fresh(4)
    percents = (0, 1, 5, 20)
    for host, percent in zip(hosts, percents, strict=True):
        host.lose(percent)
    with scene(network) as stage:
        subscribers = [stage.both(host) for host in hosts]
        sent = stage.run(publisher_host, count=count, pace=PACE)
        return [
            Row.of(f"{percent}% loss", [sent], stage.outcome(subscriber, [sent]), host)
            for percent, subscriber, host in zip(percents, subscribers, hosts, strict=True)
        ]


def restarts(network):
    """Subscribers and publishers that come late, are killed, or come again, with 2% loss."""
    publisher_host, restarted, late, whole = network.fresh(3)
    for host in (restarted, late, whole):
        host.lose(2)
    with scene(network) as stage:
        stays = stage.both(whole)
        dies = stage.subscriber(restarted)
        publisher = stage.publisher(
            publisher_host, count=1000, pace=PACE, name="one", closing=5.0, goes_on=True
        )
        publisher.go()
        time.sleep(1.5)
        dies.kill()
        comes_late = stage.subscriber(late)
        comes_again = stage.subscriber(restarted)
        time.sleep(4)
        publisher.go()
        first = publisher.result()
        rows = [
            Row.of("late joiner, 2% loss", [first], stage.outcome(comes_late, [first]), late),
            Row.of(
                "restarted subscriber (late), 2% loss",
                [first],
                stage.outcome(comes_again, [first]),
                restarted,
            ),
        ]
        publisher.close()
        second = stage.run(publisher_host, count=2000, pace=PACE, name="two")
        got = stage.outcome(stays, [first, second])
        return [*rows, Row.of("restarted publisher, 2% loss", [first, second], got, whole)]


def two_publishers(network, count=3000):
    """Two publishers on two hosts, on one group and port, with 5% loss."""
    one, other, *hosts = network.fresh(3)
    for host in hosts:
        host.lose(5)
    with scene(network) as stage:
        subscribers = [stage.both(host) for host in hosts]
        publishers = [
            stage.publisher(host, count=count, pace=PACE, name=name)
            for host, name in ((one, "one"), (other, "two"))
        ]
        for publisher in publishers:
            publisher.go()
        sent = [publisher.result() for publisher in publishers]
        return [
            Row.of("two publishers, 5% loss", sent, stage.outcome(subscriber, sent), host)
            for subscriber, host in zip(subscribers, hosts, strict=True)
        ]


def wrong_rates(network, count=3000):
    """Subscribers with a hundredth of the publisher's rate, and ten times as much, with 5% loss."""
    publisher_host, *hosts = network.fresh(3)
    rates = (RATE // 100, RATE // 10, RATE * 10)
    for host in hosts:
        host.lose(5)
    with scene(network) as stage:
        subscribers = [
            stage.both(host, rate_kbps=rate, recovery=1.0) for host, rate in zip(hosts, rates, strict=True)
        ]
        sent = stage.run(publisher_host, count=count, pace=PACE, rate_kbps=RATE, recovery=1.0)
        rows = []
        for rate, subscriber, host in zip(rates, subscribers, hosts, strict=True):
            got = stage.outcome(subscriber, [sent])
            assert "rate" in [kind for kind, _ in got["advisories"]]
            rows.append(Row.of(f"rate_kbps={rate} against {RATE}, 5% loss", [sent], got, host))
        return rows


def closing(network, count=2000):
    """A publisher that closes as soon as it has published, with 5% loss: it stays until it was heard."""
    publisher_host, *hosts = network.fresh(2)
    for host in hosts:
        host.lose(5)
    with scene(network) as stage:
        subscribers = [stage.both(host) for host in hosts]
        publisher = stage.publisher(publisher_host, count=count, pace=PACE, closing=5.0)
        publisher.go()
        publisher.go()
        sent = publisher.result()
        return [
            Row.of(
                "close() behind the last message, 5% loss", [sent], stage.outcome(subscriber, [sent]), host
            )
            for subscriber, host in zip(subscribers, hosts, strict=True)
        ]


def hasty_close(network, count=200_000):
    """A fast publisher that closes while subscribers that lag may still be repaired."""
    options = {"rate_kbps": 1_000_000, "recovery": 1.0}
    publisher_host, *hosts = network.fresh(2)
    with scene(network) as stage:
        subscribers = [stage.subscriber(host, naps=True, **options) for host in hosts]
        publisher = stage.publisher(
            publisher_host, count=count, pace=0.0, on_full="block", closing=10.0, **options
        )
        publisher.go()
        publisher.go()
        sent = publisher.result()
        return [
            Row.of("hasty close()", [sent], stage.outcome(subscriber, [sent]), host, may_be_uncounted=True)
            for subscriber, host in zip(subscribers, hosts, strict=True)
        ]


def missed_beginning(network, count=3000):
    """A publisher begins right behind a subscriber that has joined, and its first packets do not arrive."""
    publisher_host, host = network.fresh(1)
    host.lose(100)
    with scene(network) as stage:
        publisher = stage.publisher(publisher_host, count=count, pace=PACE, on_full="block", closing=5.0)
        subscriber = stage.subscriber(host, naps=True)
        publisher.go()
        publisher.go()
        until(lambda: host.packets()["lost_data"] > 10)
        host.lose(0)
        sent = publisher.result()
        got = stage.outcome(subscriber, [sent])
        return [Row.of("late to hear a publisher begin", [sent], got, host, may_be_uncounted=True)]


def unheard_close(network, count=2000):
    """A publisher that closes while nothing arrives of it."""
    publisher_host, *hosts = network.fresh(2)
    with scene(network) as stage:
        subscribers = [stage.subscriber(host, naps=True) for host in hosts]
        publisher = stage.publisher(publisher_host, count=count, pace=PACE, closing=5.0)
        publisher.go()
        time.sleep(1)
        for host in hosts:
            host.lose(100)
        sent = publisher.result()
        publisher.close()
        for host in hosts:
            host.lose(0)
        what = "close() during an outage"
        return [
            Row.of(what, [sent], stage.outcome(subscriber, [sent]), host, may_be_uncounted=True)
            for subscriber, host in zip(subscribers, hosts, strict=True)
        ]


def killed_publisher(network):
    """A publisher that is killed, so that nobody knows what it sent last, and one that takes its place."""
    publisher_host, host = network.fresh(1)
    with scene(network) as stage:
        subscriber = stage.subscriber(host)
        dies = stage.publisher(publisher_host, count=60_000, pace=PACE, name="one")
        dies.go()
        time.sleep(2)
        dies.kill()
        sent = stage.run(publisher_host, count=1000, pace=PACE, name="two")
        got = stage.outcome(subscriber, [sent])
    got["publishers"], others = [], got["publishers"]
    for row in others:
        assert row["wrong"] == row["double"] == 0
        if row["name"] == "two":
            got["publishers"].append(row)
        else:
            got["received"] -= row["delivered"]
            got["delivered"] -= row["delivered"]
            got["lost"] -= row["lost"]
    return [Row.of("the one that takes the place of a killed publisher", [sent], got, host)]


def soak(network, seconds):
    """1% loss for as long as is wanted."""
    publisher_host, *hosts = network.fresh(2)
    for host in hosts:
        host.lose(1)
    with scene(network) as stage:
        subscribers = [stage.subscriber(host, deadline=seconds + 120) for host in hosts]
        sent = stage.run(publisher_host, count=round(seconds / PACE), pace=PACE, within=seconds + 120)
        return [
            Row.of(f"1% loss for {seconds} s", [sent], stage.outcome(subscriber, [sent]), host)
            for subscriber, host in zip(subscribers, hosts, strict=True)
        ]


SCENES = (
    no_loss,
    losses,
    outages,
    lone_outages,
    planned_outages,
    slow_outage,
    starved_publisher,
    restarts,
    two_publishers,
    wrong_rates,
    closing,
    hasty_close,
    missed_beginning,
    unheard_close,
    killed_publisher,
)

if __name__ == "__main__":
    if why := missing():
        sys.exit(why)
    print(HEADER)
    with Network(5) as network:
        for play in [one for one in SCENES if one.__name__ in (sys.argv[1:] or one.__name__)]:
            for row in play(network):
                more = {"corrupt": row.malformed, "reconnects": row.reconnects, "uncounted": row.uncounted}
                print(row, *(f"({count} {name})" for name, count in more.items() if count), flush=True)
