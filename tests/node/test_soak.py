"""Nodes that come and go at random for as long as `OZ_SOAK` says, in seconds, or for half a minute."""

import os
import random
import threading
import time

import pytest

import oz
from support.sizes import SOAK
from support.waiting import DEADLINE, Thread, until

SECONDS = SOAK or 30.0

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(SECONDS + 120),
]


def left():
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return threading.active_count(), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")


def test_nodes_that_come_and_go_lose_nothing_and_leave_nothing(place, nameserver):
    draw = random.Random(7)
    ways = [{}, {"bind": "tcp://127.0.0.1:*"}, {"nameserver": nameserver.endpoint}]
    closings, rounds, worst = [], 0, 0.0
    before = None
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        options = draw.choice(ways)
        nodes = [oz.Node(f"n{number}", directory=place, **options) for number in range(draw.randint(2, 6))]
        got = {node.name: [] for node in nodes}
        for node in nodes:
            node.subscribe("a.>", handler=lambda message, own=got[node.name]: own.append(message.payload))
            node.subscribe("svc", handler=lambda message: message.reply(message.payload), group="workers")
        began = time.monotonic()
        for node in nodes:
            node.wait_for_peers(len(nodes) - 1, timeout=DEADLINE)
        for node in nodes:
            node.wait_ready(DEADLINE)
        worst = max(worst, time.monotonic() - began)
        count = draw.randint(1, 50)

        def use(node, count=count):
            for number in range(count):
                node.publish(f"a.{node.name}", (node.name, number))
                assert node.request("svc", number, timeout=DEADLINE).payload == number

        for thread in [Thread(lambda node=node: use(node)) for node in nodes]:
            thread.outcome(DEADLINE * 2)
        wanted = sorted([node.name, number] for node in nodes for number in range(count))
        for own in got.values():
            until(lambda own=own, wanted=wanted: len(own) >= len(wanted))
            assert sorted(own) == wanted
        assert [node.stats.lost for node in nodes] == [0] * len(nodes)
        draw.shuffle(nodes)
        at_once = draw.random() < 0.5

        def close(node, drain):
            began = time.monotonic()
            node.close(drain=drain, timeout=2.0)
            closings.append(time.monotonic() - began)

        closing = []
        for node in nodes:
            drain = draw.random() < 0.8
            closing.append(Thread(lambda node=node, drain=drain: close(node, drain)))
            if not at_once:
                closing[-1].outcome()
        for thread in closing:
            thread.outcome()
        rounds += 1
        if rounds == 20:
            before = left()
    assert os.listdir(place) == []
    assert before is not None, f"only {rounds} rounds"
    until(lambda: left()[0] <= before[0] and left()[1] <= before[1])
    grown = left()[2] - before[2]
    print(
        f"{rounds} rounds, {len(closings)} closings of at most {max(closings):.2f} s, ready after at most "
        f"{worst:.2f} s, {grown / 2**20:+.1f} MiB"
    )
    assert max(closings) < 6
    assert grown < 64 * 2**20
