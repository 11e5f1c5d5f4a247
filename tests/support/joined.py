"""Buses in a short directory, with nodes and forwarders on them, for tests of what crosses."""

import shutil
import tempfile
from contextlib import ExitStack, contextmanager

import oz
from oz.services.forwarder import Forwarder
from support.inside import engine_of
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

COMMAND = f"""\
import sys
from oz.protocol.bridge import forwarding
from oz.cli import main
# On a busy machine it would begin without peers, and tell later that messages of theirs may be missing.
forwarding.PATIENCE = {DEADLINE}
turn = forwarding.Forwarding.turn
def turn_and_tell(self, now, **news):
    knew = self.has_stand_by
    turn(self, now, **news)
    if self.has_stand_by and not knew:
        print("another stands by", flush=True)
forwarding.Forwarding.turn = turn_and_tell
main(sys.argv[1:], 'oz')
"""


class Buses(ExitStack):
    """Makes nodes and forwarders, and closes them at the end."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
        self.callback(shutil.rmtree, self.directory, ignore_errors=True)

    def node(self, bus, name=None, **options):
        node = oz.Node(name, bus=bus, directory=self.directory, codec=PLAIN, **options)
        self.callback(node.close, timeout=1.0)
        return node

    def forwarder(self, *buses, settled=True, **options):
        """Join buses, by name or as the arguments of a leg; give the forwarder, at work in a thread."""
        legs = [{"bus": one} if isinstance(one, str) else one for one in buses]
        made = self.enter_context(
            Forwarder([{"directory": self.directory, **one} for one in legs], **options)
        )
        running = Thread(made.run)

        def end():
            made.stop()
            running.outcome()

        self.callback(end)
        if settled:
            until(lambda: made.is_settled)
        return made

    @contextmanager
    def process(self, *buses):
        """The same as a process; gives it once it is ready."""
        legs = [f"--leg=bus={one},directory={self.directory}" for one in buses]
        with started("-c", COMMAND, "forwarder", *legs) as process:
            line = process.stderr.readline()
            assert line.startswith("oz forwarder: ready, "), line + process.stderr.read()
            process.said = line
            yield process


class _Plain:
    """A codec of bytes: what is sent is what was given."""

    @staticmethod
    def encode(value):
        return value if isinstance(value, (bytes, list)) else str(value).encode()

    @staticmethod
    def decode(payload):
        return payload


PLAIN = _Plain()


def wants(node, subject):
    """Tell whether somebody has asked a node for a subject."""
    return engine_of(node).sockets.main.engine.interest(subject)


def wait_for_interest(node, *subjects, gone=False):
    undone = []

    def all_is_so():
        undone[:] = [one for one in undone or subjects if wants(node, one) is gone]
        return not undone

    try:
        until(all_is_so)
    except AssertionError as error:
        raise AssertionError(f"{error}\nof these subjects: {undone}") from None


def payloads(subscription, count):
    return [subscription.receive(DEADLINE).payload for _ in range(count)]


def up_to(subscription, last):
    """Receive up to a payload; give those before it."""
    got = []
    while (payload := subscription.receive(DEADLINE).payload) != last:
        got.append(payload)
    return got
