"""A bus with one victim that is attacked, and honest nodes beside it."""

import shutil
import tempfile
import time
from contextlib import ExitStack, contextmanager

import oz
from hostile.attacked import SLOW, victim
from support.inside import engine_of
from support.waiting import DEADLINE, until

SAID = 10
KINDS = ("node", "asyncio", "forwarder")


class Bus:
    """An honest node publishes numbers and asks; the victim publishes what is dear to match, when asked.

    A victim that is a node answers by itself; behind a forwarder an honest node on the other bus does.

    Attributes:
        got: gives the numbers that have arrived behind the victim.
        said: the numbers that the victim has published.
        sent: how many numbers were published.
    """

    def __init__(self, kind, directory, process, honest, got, asks, says):
        self.kind, self.directory, self.victim = kind, directory, process
        self.honest, self.got, self._asks, self._says = honest, got, asks, says
        self.said, self.sent = [], 0
        honest.subscribe(f"{SLOW}.{kind}", handler=lambda message: self.said.append(message.payload))

    def publish(self):
        """Publish the next number, and give the victim a moment."""
        self.honest.publish("a.b", self.sent)
        self.sent += 1
        time.sleep(0.001)

    def goes_on_in_a_run(self, count):
        """Publish until so many numbers in a row have arrived behind each other."""
        first = self.sent

        def run():
            for _ in range(10):
                self.publish()
            got = self.got()
            last = got[-count:]
            return len(last) == count and last[0] >= first and last[-1] - last[0] == count - 1

        until(run)

    def a_hundred_arrive(self):
        """Publish a hundred numbers, and wait for them; return which those are."""
        wanted = list(range(self.sent, self.sent + 100))
        for _ in wanted:
            self.publish()
        until(lambda: self.got()[-1:] == wanted[-1:])
        assert self.got()[-100:] == wanted
        return wanted

    def all_arrives(self, rounds):
        """Publish, have the victim publish, and have requests answered; all of it arrives, in order.

        Each round waits for what it has published: no buffer is ever full, however slow the victim is.
        """
        for _ in range(rounds):
            wanted = self.a_hundred_arrive()
        asks, subject = self._says
        for number in wanted[:SAID]:
            asks.publish(subject, number)
        until(lambda: self.said[-1:] == wanted[SAID - 1 : SAID])
        assert self.said[-SAID:] == wanted[:SAID]
        for number in range(SAID):
            for asks, subject in self._asks:
                assert asks.request(subject, number, timeout=DEADLINE).payload == number
        got = self.got()
        assert got == sorted(set(got))
        assert self.victim.told().get("failed", 0) == 0


def asked_for(node, subject):
    """Count the peers whose interest in a subject has come to a node."""
    return engine_of(node).sockets.main.engine.sender.routes.count(subject)


def _beside_a_node(kind, directory, process, honest):
    honest.wait_for_peers({kind}, timeout=DEADLINE)
    bus = Bus(
        kind, directory, process, honest,
        got=lambda: process.told()["got"], asks=[(honest, f"svc.{kind}")], says=(honest, f"say.{kind}"),
    )  # fmt: skip
    honest.wait_ready(DEADLINE)
    until(lambda: [asked_for(honest, one) for one in ("a.b", f"svc.{kind}", f"say.{kind}")] == [1, 1, 1])
    return bus


def _beside_a_forwarder(directory, process, honest, far):
    got = []
    far.subscribe("a.b", handler=lambda message: got.append(message.payload))
    for node, subject in ((honest, "svc.near"), (far, "svc.far")):
        node.subscribe(subject, handler=lambda message: message.reply(message.payload))
    for node in (honest, far):
        node.wait_for_peers({"forwarder"}, timeout=DEADLINE)
    bus = Bus(
        "forwarder", directory, process, honest,
        got=lambda: process.told() and list(got), asks=[(honest, "svc.far"), (far, "svc.near")],
        says=(far, f"{SLOW}.forwarder"),
    )  # fmt: skip
    honest.wait_ready(DEADLINE)
    far.wait_ready(DEADLINE)
    # Peers are ready before the forwarder: it asks for nothing until it has looked for other forwarders.
    until(lambda: [asked_for(honest, one) for one in ("a.b", "svc.far")] == [1, 1])
    until(lambda: [asked_for(far, one) for one in (f"{SLOW}.forwarder", "svc.near")] == [1, 1])
    return bus


@contextmanager
def bus_with(kind):
    """Start a victim, and honest nodes; everybody knows what the others ask for."""
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    directory = f"{made}/bus"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        process = stack.enter_context(victim(kind, directory))
        honest = stack.enter_context(oz.Node("honest", bus="a", directory=directory))
        if kind == "forwarder":
            far = stack.enter_context(oz.Node("far", bus="b", directory=directory))
            yield _beside_a_forwarder(directory, process, honest, far)
        else:
            yield _beside_a_node(kind, directory, process, honest)
