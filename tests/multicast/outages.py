"""Scenes in which nothing arrives for a while; see `multicast.scenes`."""

import time
from dataclasses import asdict

from multicast.playing import scene
from multicast.rows import PACE, Row
from oz.multicast.plan import Load, plan


def outages(network):
    """No packet arrives for 2 or for 10 seconds."""
    publisher_host, short, long, quick, whole = network.fresh(4)
    with scene(network) as stage:
        playing = [
            ("2 s outage", short, stage.both(short)),
            ("10 s outage", long, stage.keeping(long)),
            ("10 s outage, stale_after=1.5", quick, stage.both(quick, stale_after=1.5)),
            ("the same time, no outage", whole, stage.both(whole)),
        ]
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
        # Time to come back in.
        time.sleep(12)
        publisher.go()
        sent = publisher.result()
        return [
            Row.of(what, [sent], stage.outcome(subscriber, [sent]), host)
            for what, host, subscriber in playing
        ]


def lone_outage(network, seconds, rate):
    """No packet arrives for a while at the only host that listens."""
    publisher_host, host = network.fresh(1)
    with scene(network) as stage:
        subscriber = stage.keeping(host)
        publisher = stage.publisher(publisher_host, count=1, pace=1 / rate, goes_on=True)
        publisher.go()
        time.sleep(2)
        host.lose(100)
        time.sleep(seconds)
        host.lose(0)
        # Longer than libpgm tries to repair, and than it may take to notice that it cannot.
        time.sleep(32)
        publisher.go()
        sent = publisher.result()
        what = f"{seconds} s outage, {rate} messages a second, nobody else"
        return [Row.of(what, [sent], stage.outcome(subscriber, [sent]), host)]


def lone_outages(network):
    """Such outages, from one that PGM repairs to one that it does not."""
    played = [lone_outage(network, seconds, rate) for rate in (200, 500) for seconds in (5, 10, 15, 30)]
    return [row for rows in played for row in rows]


def planned_outage(network, rate, outage, **otherwise):
    """Two subscribers are cut off at once, for as long as was planned for."""
    load = Load(rate=rate, size=212, outage=outage, subject=6)
    chosen = asdict(plan(load).options) | otherwise
    publisher_host, *hosts = network.fresh(2)
    with scene(network) as stage:
        subscribers = [stage.both(host, **chosen) for host in hosts]
        # What makes a payload of these adds twelve bytes.
        publisher = stage.publisher(
            publisher_host,
            count=1,
            pace=1 / rate,
            size=load.size - 12,
            goes_on=True,
            on_full="block",
            **chosen,
        )
        publisher.go()
        time.sleep(2)
        for host in hosts:
            host.lose(100)
        time.sleep(outage)
        for host in hosts:
            host.lose(0)
        time.sleep(26)
        publisher.go()
        sent = publisher.result()
        what = ", ".join([f"planned: {rate} a second, {outage} s outage of two at once", *otherwise])
        return [
            Row.of(what, [sent], stage.outcome(subscriber, [sent]), host)
            for subscriber, host in zip(subscribers, hosts, strict=True)
        ]


def planned_outages(network):
    """Plans, the last of which says itself that a gap is likely; and one that is not kept to."""
    played = [
        planned_outage(network, rate, outage)
        for rate, outage in ((1, 2), (200, 5), (400, 2), (1_500, 1), (1_500, 2))
    ]
    played.append(planned_outage(network, 400, 2, stale_after=1.5))
    return [row for rows in played for row in rows]


def slow_outage(network, seconds=60):
    """No packet arrives for a minute, of a publisher that sends ten messages a second."""
    publisher_host, host = network.fresh(1)
    with scene(network) as stage:
        subscriber = stage.keeping(host)
        publisher = stage.publisher(publisher_host, count=10, pace=0.1, goes_on=True)
        publisher.go()
        time.sleep(2)
        host.lose(100)
        time.sleep(seconds)
        host.lose(0)
        time.sleep(2)
        publisher.go()
        sent = publisher.result()
        what = f"{seconds} s outage, 10 messages a second"
        return [Row.of(what, [sent], stage.outcome(subscriber, [sent]), host)]


def starved_publisher(network, seconds=10):
    """A publisher gets no processor for a while, with 1% loss."""
    publisher_host, host = network.fresh(1)
    host.lose(1)
    with scene(network) as stage:
        subscriber = stage.both(host)
        publisher = stage.publisher(publisher_host, count=3_000, pace=PACE)
        publisher.go()
        time.sleep(1)
        publisher.stand_still()
        time.sleep(seconds)
        publisher.go_on()
        sent = publisher.result()
        what = f"publisher without processor for {seconds} s, 1% loss"
        return [Row.of(what, [sent], stage.outcome(subscriber, [sent]), host)]
