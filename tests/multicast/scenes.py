"""What multicast is put through, on a network of namespaces: `scenes.py` plays all and prints the tables.

Each function plays on hosts that it is given, and gives rows: the scene, what was sent since the subscriber
came, what it delivered, the data packets that were lost on the way to it, the repairs that came, and what it
reported lost. Each checks the law, by `playing.check`.
"""

import sys
import time
from dataclasses import dataclass

from playing import check, scene

from support.network import Network, missing

PACE = 0.001
RATE = 10_000
PATIENT = 30.0


@dataclass
class Row:
    scene: str
    sent: int
    delivered: int
    lost_packets: int
    repairs: int
    lost: int
    malformed: int
    reconnects: int

    @classmethod
    def of(cls, what, sent, got, host):
        check(sent, got, joins_late="late" in what)
        first = {one["name"]: one["first"] for one in got["publishers"]}
        packets = host.packets()
        return cls(
            what,
            sum(one["sent"] - first[one["name"]] for one in sent),
            got["delivered"],
            packets["lost_data"],
            packets["repairs"],
            got["lost"],
            got["malformed"],
            got["reconnects"],
        )

    def __str__(self):
        cells = (self.scene, self.sent, self.delivered, self.lost_packets, self.repairs, self.lost)
        return " | ".join(["", *(f"{one:,}" if isinstance(one, int) else one for one in cells), ""]).strip()


HEADER = """| scene | sent | delivered | data packets lost on the way | repairs that came | reported lost |
| --- | ---: | ---: | ---: | ---: | ---: |"""


def no_loss(network, count=3000):
    """Nothing is lost on the way, and a machine that is busy for a while is no outage: all is delivered."""
    publisher_host, *hosts = network.fresh(2)
    with scene(network) as stage:
        subscribers = [stage.subscriber(host, stale_after=PATIENT) for host in hosts]
        sent = stage.run(publisher_host, count=count, pace=PACE, on_full="block")
        return [
            Row.of(f"no loss, stale_after={PATIENT:g}", [sent], stage.outcome(subscriber, [sent]), host)
            for subscriber, host in zip(subscribers, hosts, strict=True)
        ]


def losses(network, count=3000):
    """Random loss, another on the way to each of four hosts."""
    publisher_host, *hosts = network.fresh(4)
    percents = (0, 1, 5, 20)
    for host, percent in zip(hosts, percents, strict=True):
        host.lose(percent)
    with scene(network) as stage:
        subscribers = [stage.subscriber(host) for host in hosts]
        sent = stage.run(publisher_host, count=count, pace=PACE)
        return [
            Row.of(f"{percent}% loss", [sent], stage.outcome(subscriber, [sent]), host)
            for percent, subscriber, host in zip(percents, subscribers, hosts, strict=True)
        ]


def outages(network):
    """No packet arrives for 2 or for 10 seconds, with a subscriber that reconnects before and one after."""
    publisher_host, short, patient, long, whole = network.fresh(4)
    with scene(network) as stage:
        playing = [
            ("2 s outage", short, stage.subscriber(short)),
            ("2 s outage, stale_after=5", patient, stage.subscriber(patient, stale_after=5.0)),
            ("10 s outage", long, stage.subscriber(long)),
            ("the same time, no outage", whole, stage.subscriber(whole)),
        ]
        publisher = stage.publisher(publisher_host, count=1_000, pace=PACE, goes_on=True)
        publisher.go()
        time.sleep(1)
        for host in (short, patient, long):
            host.lose(100)
        time.sleep(2)
        short.lose(0)
        patient.lose(0)
        time.sleep(8)
        long.lose(0)
        time.sleep(3)
        publisher.go()
        sent = publisher.result()
        return [
            Row.of(what, [sent], stage.outcome(subscriber, [sent]), host)
            for what, host, subscriber in playing
        ]


def restarts(network):
    """Subscribers and publishers that come late, are killed, or come again, with 2% loss."""
    publisher_host, restarted, late, whole = network.fresh(3)
    for host in (restarted, late, whole):
        host.lose(2)
    with scene(network) as stage:
        stays = stage.subscriber(whole)
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
        subscribers = [stage.subscriber(host) for host in hosts]
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
            stage.subscriber(host, rate_kbps=rate, recovery=1.0)
            for host, rate in zip(hosts, rates, strict=True)
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
        subscribers = [stage.subscriber(host) for host in hosts]
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


SCENES = (no_loss, losses, outages, restarts, two_publishers, wrong_rates, closing, killed_publisher)

if __name__ == "__main__":
    if why := missing():
        sys.exit(why)
    print(HEADER)
    with Network(5) as network:
        for play in SCENES:
            for row in play(network):
                print(row, "" if not row.malformed else f"({row.malformed} corrupt)", flush=True)
