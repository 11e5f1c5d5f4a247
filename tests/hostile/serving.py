"""A service or a node that is attacked: `serving.py KIND …`. It says where, and how after each line.

Nodes take in what is on `a.b`, numbers, answer on `svc.KIND` with what was asked, and publish what is said to
them on `say.KIND`.
"""

import asyncio
import json
import os
import resource
import sys
from unittest.mock import patch

import oz
from hostile.attacked import SLOW
from support.waiting import Thread

DESCRIPTORS = 256
"""As many as it may have: those who connect and are silent try for more."""


_STATM = os.open("/proc/self/statm", os.O_RDONLY)
"""Opened before the attacker takes all descriptors."""


def resident():
    return int(os.pread(_STATM, 100, 0).split()[1]) * 4096


def say(**what):
    print(json.dumps({**what, "resident": resident()}), flush=True)


def tell(node, got):
    stats = node.stats
    say(
        got=got, contradictions=stats.contradictions, failed=stats.failed,
        refused=stats.refused_introductions + stats.refused_replies,
    )  # fmt: skip


def be_a_node(directory):
    got = []
    with oz.Node("node", bus="a", directory=directory, bind="tcp://127.0.0.1:*") as node:
        node.subscribe("a.b", handler=lambda message: got.append(message.payload))
        node.subscribe("svc.node", handler=lambda message: message.reply(message.payload))
        node.subscribe("say.node", handler=lambda message: node.publish(f"{SLOW}.node", message.payload))
        say(endpoint=node.endpoint)
        for _ in sys.stdin:
            tell(node, got)


async def be_a_node_of_asyncio(directory):
    got = []

    async def answer(message):
        await message.reply(message.payload)

    async def repeat(message):
        await node.publish(f"{SLOW}.asyncio", message.payload)

    async with oz.asyncio.Node("asyncio", bus="a", directory=directory, bind="tcp://127.0.0.1:*") as node:
        node.subscribe("a.b", handler=lambda message: got.append(message.payload))
        node.subscribe("svc.asyncio", handler=answer)
        node.subscribe("say.asyncio", handler=repeat)
        say(endpoint=node.endpoint)
        while await asyncio.to_thread(sys.stdin.readline):
            tell(node, got)


def be_sockets(*endpoints):
    """A subscriber of others, and a publisher of what comes."""
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(list(endpoints), filtering="publisher", on_gap=lambda gap: None) as sub,
    ):
        sub.subscribe("a.b")
        say(endpoint=pub.endpoint)
        answering = Thread(lambda: [say(refused=pub.stats.refused) for _ in sys.stdin])
        for message in sub:
            pub.publish(f"{SLOW}.sockets", message.payload)
        answering.outcome()


async def be_sockets_of_asyncio(*endpoints):
    async def answer():
        while await asyncio.to_thread(sys.stdin.readline):
            say(refused=pub.stats.refused)

    async with (
        oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
        oz.asyncio.Subscriber(list(endpoints), filtering="publisher", on_gap=lambda gap: None) as sub,
    ):
        sub.subscribe("a.b")
        say(endpoint=pub.endpoint)
        answering = asyncio.create_task(answer())
        async for message in sub:
            await pub.publish(f"{SLOW}.loop", message.payload)
        await answering


def be_a_forwarder(directory):
    from oz.services import Forwarder

    legs = [{"bus": bus, "directory": directory, "bind": "tcp://127.0.0.1:*"} for bus in "ab"]
    with Forwarder(legs, name="forwarder") as forwarder:
        running = Thread(forwarder.run)
        say(endpoint=forwarder.legs[0].engine.sockets.endpoint)
        for _ in sys.stdin:
            contradictions = sum(leg.engine.count().contradictions for leg in forwarder.legs)
            say(lost=forwarder.stats.lost, contradictions=contradictions)
        forwarder.stop()
        running.outcome()


class Multicasting:
    """Stands for the process of a gateway that multicasts: it takes everything."""

    role, is_ready, restarts, pid, socket = "sender", True, 0, None, None

    def __init__(self, *_):
        self.taken = 0

    def watch(self, _now):
        return ()

    def next_deadline(self):
        return float("inf")

    def register(self, *_, **__):
        pass

    def has_room(self):
        return True

    def send(self, _frame):
        self.taken += 1
        return True

    def begin_close(self):
        pass

    def close(self):
        pass


def be_a_gateway():
    from oz.services import gateway as module

    with patch.object(module, "require_pgm"), patch.object(module, "Worker", Multicasting):
        gateway = module.Gateway(
            send="epgm://127.0.0.1;239.192.1.1:5555",
            subscribers="tcp://127.0.0.1:*",
            publishers="tcp://127.0.0.1:*",
        )
    with gateway:
        running = Thread(gateway.run)
        say(subscribers=gateway.subscribers_at[0], publishers=gateway.publishers_at[0])
        for _ in sys.stdin:
            say(sent=gateway.stats.sent)
        gateway.stop()
        running.outcome()


KINDS = {
    "sockets": be_sockets,
    "loop": lambda *endpoints: asyncio.run(be_sockets_of_asyncio(*endpoints)),
    "node": be_a_node,
    "asyncio": lambda directory: asyncio.run(be_a_node_of_asyncio(directory)),
    "forwarder": be_a_forwarder,
    "gateway": be_a_gateway,
}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    KINDS[sys.argv[1]](*sys.argv[2:])
