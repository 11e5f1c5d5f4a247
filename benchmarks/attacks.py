"""How late honest messages are while a stranger attacks: `python benchmarks/attacks.py [--count 2000]`.

Each row is an attack of `tests/hostile`, by one process. Each column is what is attacked, in a process of its
own:

- `sockets`, `loop`: a publisher and a subscriber, of threads and of asyncio. What comes to one goes out by
  the other, so that a message makes two hops.
- `node`, `asyncio`: a node that publishes what it is sent. Two hops.
- `forwarder`: between two buses. Two hops.
- `gateway`: a message goes in at one side and out at the other. Two hops.

A message is published each millisecond by this process and comes back to it. A cell says how late those at
the middle and at the 99.9th percentile were, in milliseconds, and how many did not come. One row has no
attack: what it says is the machine's.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import machine

import oz

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from hostile.attacked import SLOW, attacker, victim

PATIENCE = 20.0
"""Seconds for which the last messages are waited for."""

ATTACKS = {
    "none": "",
    "new sessions without end": "linking.py hellos ENDPOINT",
    "declares 1,000 patterns without end": "linking.py declares ENDPOINT",
    "reads no messages": "linking.py silent ENDPOINT",
    "long prefixes": "subscribing.py subscribe_to_long_prefixes ENDPOINT",
    "claimed sizes": "claiming.py ENDPOINT",
    "declares without end": "subscribing.py declare_without_end ENDPOINT",
    "many streams": "subscribing.py listen_on_many_streams ENDPOINT",
    "heavy patterns": "costing.py ENDPOINT heavy",
}
LINKED = ("sockets", "loop")
"""Publishers and subscribers, which have links. Nodes do not have links yet."""
OF_LINKS, OF_NODES = ("linking.py",), ("costing.py", "subscribing.py declare", "subscribing.py listen")
KINDS = ("sockets", "loop", "node", "asyncio", "forwarder", "gateway")

Publish = Callable[[float], object]


class Heard:
    """What has come back: how long each message took, in seconds."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.last = 0.0

    def take(self, message: Any) -> None:
        """Take one in."""
        sent = message.payload if type(message.payload) is float else float(message.payload)
        self.took.append(time.monotonic() - sent)
        self.last = max(self.last, sent)


@contextmanager
def of_sockets(kind: str, attack: str, heard: Heard) -> Iterator[Publish]:
    """Publish to sockets, and hear what they publish."""
    with ExitStack() as stack:
        pub = stack.enter_context(oz.Publisher("tcp://127.0.0.1:*"))
        process = stack.enter_context(victim(kind, pub.endpoint))
        with hearing(process.said["endpoint"], kind, heard), attacking(attack, process.said["endpoint"]):
            pub.wait_for_subscribers("a.b", timeout=PATIENCE)
            yield lambda at: pub.publish("a.b", b"%.9f" % at)


@contextmanager
def hearing(endpoint: str, kind: str, heard: Heard) -> Iterator[None]:
    """Hear what a publisher publishes."""
    with oz.Subscriber(endpoint, filtering="publisher") as sub:
        sub.subscribe(f"{SLOW}.{kind}", handler=heard.take)
        sub.wait_ready(timeout=PATIENCE)
        is_over = False

        def run() -> None:
            while not is_over:
                sub.run(timeout=0.05)

        running = Thread(target=run)
        running.start()
        try:
            yield
        finally:
            is_over = True
            running.join()


@contextmanager
def attacking(attack: str, endpoint: str, **words: str) -> Iterator[None]:
    """Have an attacker attack."""
    if not attack:
        yield
        return
    words = {"ENDPOINT": endpoint, **words}
    with attacker(*(words.get(one, one) for one in attack.split())):
        yield


@contextmanager
def of_nodes(kind: str, attack: str, heard: Heard) -> Iterator[Publish]:
    """Publish to a node, or by way of a forwarder, and hear what comes of it."""
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        directory = f"{made}/bus"
        process = stack.enter_context(victim(kind, directory))
        options = oz.NodeOptions(directory=directory)
        honest = stack.enter_context(oz.Node("honest", bus="a", options=options))
        far = stack.enter_context(oz.Node("far", bus="b", options=options))
        honest.subscribe(f"{SLOW}.{kind}", handler=heard.take)
        honest.wait_ready(kind, timeout=PATIENCE)
        sends, subject = (far, f"{SLOW}.forwarder") if kind == "forwarder" else (honest, f"say.{kind}")
        # The first may come before the other side knows who wants them.
        while not heard.took:
            sends.publish(subject, time.monotonic())
            time.sleep(0.05)
        stack.enter_context(attacking(attack, process.said["endpoint"], DIRECTORY=directory))
        yield lambda at: sends.publish(subject, at)


@contextmanager
def of_gateway(kind: str, attack: str, heard: Heard) -> Iterator[Publish]:
    """Publish to a gateway, and hear it."""
    with (
        victim(kind) as process,
        oz.Publisher(connect=process.said["publishers"]) as pub,
        hearing(process.said["subscribers"], kind, heard),
        attacking(attack, process.said["subscribers"]),
    ):
        pub.wait_for_subscribers(f"{SLOW}.{kind}", timeout=PATIENCE)
        yield lambda at: pub.publish(f"{SLOW}.{kind}", b"%.9f" % at)


STAGES = {"sockets": of_sockets, "loop": of_sockets, "gateway": of_gateway}


def measure(kind: str, attack: str, count: int) -> str:
    """Publish for a while beside an attack; say how late it was."""
    heard = Heard()
    with STAGES.get(kind, of_nodes)(kind, attack, heard) as publish:
        heard.took.clear()
        for _ in range(count):
            last = time.monotonic()
            publish(last)
            time.sleep(0.001)
        ends = time.monotonic() + PATIENCE
        while heard.last < last - 1e-6 and time.monotonic() < ends:
            time.sleep(0.01)
    took = sorted(heard.took) or [0.0]
    middle, late = (1_000 * took[min(len(took) - 1, int(part * len(took)))] for part in (0.5, 0.999))
    missing = max(0, count - len(heard.took))
    return f"{middle:.1f} / {late:.0f}" + f", {missing} lost" * bool(missing)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=2_000, help="messages for each cell")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))
    given = parser.parse_args()
    print(machine.describe())
    print("| attack |", " | ".join(given.kinds), "|")
    print("| --- |", " | ".join("---" for _ in given.kinds), "|", flush=True)
    for name in given.attacks:
        cells = []
        for kind in given.kinds:
            attack = ATTACKS[name]
            has_no_effect = attack.startswith(OF_NODES if kind in LINKED else OF_LINKS)
            cells.append("-" if has_no_effect else measure(kind, attack, given.count))
        print(f"| {name} |", " | ".join(cells), "|", flush=True)
    print(machine.describe())


if __name__ == "__main__":
    main()
