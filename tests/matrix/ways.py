"""Every way to receive, blocking and awaited, and what a combination of way and socket cannot do.

A way goes on until its receiver is closed or drained, and gives each payload to `take` at once. It waits for
`patience` seconds at a time where a time can be given, and then goes on.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import zmq
import zmq.asyncio

import oz
import oz.asyncio
from support.inside import engine_of


def payloads_of(one):
    """Give those of a message, or of a batch of them."""
    return [one.payload] if isinstance(one, oz.Message) else one.payloads


def in_ms(seconds):
    return ceil(seconds * 1000)


def wanted(frames):
    return frames[-1]


# blocking -------------------------------------------------------------------------------------------------


def receive_in_time(sub, take, patience):
    while True:
        with suppress(oz.Timeout):
            take(sub.receive(timeout=patience).payload)


def receive(sub, take, patience):
    while True:
        take(sub.receive().payload)


def iterate(sub, take, patience):
    for message in sub:
        take(message.payload)


def many(sub, take, patience):
    while True:
        with suppress(oz.Timeout):
            for message in sub.receive_many(timeout=patience):
                take(message.payload)


def batches(sub, take, patience):
    while True:
        with suppress(oz.Timeout):
            for one in sub.receive_batches(timeout=patience):
                for payload in payloads_of(one):
                    take(payload)


def run(sub, take, patience):
    while True:
        sub.run(patience)
        if sub.closed or engine_of(sub).is_drained:
            return


def run_for_ever(sub, take, patience):
    sub.run()


def multipart(sub, take, patience):
    sub.rcvtimeo = in_ms(patience)
    while True:
        with suppress(zmq.Again):
            take(wanted(sub.recv_multipart()))


def take_all(sub, take):
    """Take what is there after an event: only as much as a program would that has other sockets too."""
    with suppress(zmq.Again):
        while True:
            take(wanted(sub.recv_multipart(zmq.NOBLOCK)))


def poll(sub, take, patience):
    while True:
        if sub.poll(in_ms(patience)):
            take_all(sub, take)


def poller_of(kind):
    def with_poller(sub, take, patience):
        poller = kind()
        poller.register(sub, zmq.POLLIN)
        while True:
            if poller.poll(in_ms(patience)):
                take_all(sub, take)

    return with_poller


# awaited --------------------------------------------------------------------------------------------------


async def receive_in_time_awaited(sub, take, patience):
    while True:
        with suppress(oz.Timeout):
            take((await sub.receive(timeout=patience)).payload)


async def receive_awaited(sub, take, patience):
    while True:
        take((await sub.receive()).payload)


async def iterate_awaited(sub, take, patience):
    async for message in sub:
        take(message.payload)


async def many_awaited(sub, take, patience):
    while True:
        with suppress(oz.Timeout):
            for message in await sub.receive_many(timeout=patience):
                take(message.payload)


async def batches_awaited(sub, take, patience):
    while True:
        with suppress(oz.Timeout):
            for one in await sub.receive_batches(timeout=patience):
                for payload in payloads_of(one):
                    take(payload)


async def run_awaited(sub, take, patience):
    while True:
        await sub.run(patience)
        if sub.closed or engine_of(sub).is_drained:
            return


async def run_for_ever_awaited(sub, take, patience):
    await sub.run()


async def multipart_awaited(sub, take, patience):
    sub.rcvtimeo = in_ms(patience)
    while True:
        with suppress(zmq.Again):
            take(wanted(await sub.recv_multipart()))


async def take_all_awaited(sub, take):
    with suppress(zmq.Again):
        while True:
            take(wanted(await sub.recv_multipart(zmq.NOBLOCK)))


async def poll_awaited(sub, take, patience):
    while True:
        if await sub.poll(in_ms(patience)):
            await take_all_awaited(sub, take)


async def poller_awaited(sub, take, patience):
    poller = zmq.asyncio.Poller()
    poller.register(sub, zmq.POLLIN)
    while True:
        if await poller.poll(in_ms(patience)):
            await take_all_awaited(sub, take)


# the table ------------------------------------------------------------------------------------------------

OVER = "it returned"
CLOSED = oz.ClosedError
NO_SOCKET = zmq.ZMQError
CANCELLED = (zmq.ZMQError, asyncio.CancelledError)


@dataclass(frozen=True)
class Way:
    """One way: its two forms, and how it ends when its receiver is closed or drained."""

    name: str
    blocking: Any
    awaited: Any
    end: Any
    handles: bool = False
    patient: bool = True  # takes a time to wait
    is_held: bool = True  # the socket knows that a thread waits in it; of what is not oz's it does not
    is_foreign: bool = False  # it knows of readability alone: not that nothing comes any more
    refused: dict[str, Any] = field(default_factory=dict)  # where it is not there, and what says so

    @property
    def method(self):
        """The method that it stands on."""
        return {"run in time": "run", "oz.Poller": "poll", "zmq.Poller": "fileno"}.get(self.name, self.name)


ON_NODES = {"node": AttributeError, "asyncio node": AttributeError}

WAYS = [
    Way("receive in time", receive_in_time, receive_in_time_awaited, CLOSED),
    Way("receive", receive, receive_awaited, CLOSED, patient=False),
    Way("iterate", iterate, iterate_awaited, OVER, patient=False),
    Way("receive_many", many, many_awaited, CLOSED, refused=ON_NODES),
    Way("receive_batches", batches, batches_awaited, CLOSED, refused=ON_NODES),
    Way("run in time", run, run_awaited, OVER, handles=True, refused=ON_NODES),
    Way("run", run_for_ever, run_for_ever_awaited, OVER, handles=True, patient=False, refused=ON_NODES),
    Way("handler", receive_in_time, receive_in_time_awaited, CLOSED, handles=True),
    Way("recv_multipart", multipart, multipart_awaited, NO_SOCKET, refused=ON_NODES),
    Way("poll", poll, poll_awaited, CANCELLED, refused=ON_NODES),
    Way("oz.Poller", poller_of(oz.Poller), None, NO_SOCKET, refused=ON_NODES),
    Way(
        "zmq.Poller",
        poller_of(zmq.Poller),
        poller_awaited,
        CANCELLED,
        refused=ON_NODES,
        is_held=False,
        is_foreign=True,
    ),
]
