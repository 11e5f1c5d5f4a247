"""All ways to receive, blocking and awaited, and the combinations of way and socket that do not exist.

A way goes on until its receiver is closed or drained, and gives each payload to `take` at once. It waits for
`patience` seconds at a time where a time can be given, and then goes on.
"""

import select
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import zmq

import oz
import oz.asyncio

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


def run(sub, take, patience):
    while sub.subscriptions:
        sub.run(timeout=patience)


def run_for_ever(sub, take, patience):
    sub.run()


def take_all(sub, take):
    """Take what is there after an event: only as much as a program would that has other sockets too."""
    with suppress(oz.Timeout):
        while True:
            take(sub.receive(timeout=0).payload)


def poller(sub, take, patience):
    made = oz.Poller()
    made.register(sub, zmq.POLLIN)
    while True:
        if made.poll(ceil(patience * 1000)):
            take_all(sub, take)


def descriptor(sub, take, patience):
    while True:
        # At least once a second, so that publishers are answered.
        select.select([sub.fileno()], [], [], min(patience, 1.0))
        take_all(sub, take)


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


async def run_awaited(sub, take, patience):
    while sub.subscriptions:
        await sub.run(timeout=patience)


async def run_for_ever_awaited(sub, take, patience):
    await sub.run()


# the table ------------------------------------------------------------------------------------------------

OVER = "it returned"
CLOSED = oz.ClosedError


@dataclass(frozen=True)
class Way:
    """One way: its two forms, and how it ends when its receiver is closed or drained."""

    name: str
    blocking: Any
    awaited: Any
    end: Any
    handles: bool = False
    patient: bool = True  # takes a time to wait
    is_own: bool = False  # it receives from the subscription
    is_foreign: bool = False  # it waits for a descriptor, which closing the receiver closes
    refused: dict[str, Any] = field(default_factory=dict)  # where it is not there, and what says so

    @property
    def method(self):
        """The method that it stands on."""
        return {"run in time": "run", "oz.Poller": "fileno", "descriptor": "fileno"}.get(self.name, self.name)


ON_NODES = {"node": AttributeError, "asyncio node": AttributeError}

WAYS = [
    Way("receive in time", receive_in_time, receive_in_time_awaited, CLOSED),
    Way("receive", receive, receive_awaited, CLOSED, patient=False),
    Way("iterate", iterate, iterate_awaited, OVER, patient=False),
    Way("receive_many", many, many_awaited, CLOSED, refused=ON_NODES),
    Way("own receive", receive_in_time, receive_in_time_awaited, CLOSED, is_own=True),
    Way("own iteration", iterate, iterate_awaited, OVER, patient=False, is_own=True),
    Way("run in time", run, run_awaited, OVER, handles=True, refused=ON_NODES),
    Way("run", run_for_ever, run_for_ever_awaited, OVER, handles=True, patient=False, refused=ON_NODES),
    Way("handler", receive_in_time, receive_in_time_awaited, CLOSED, handles=True),
    Way("oz.Poller", poller, None, CLOSED, refused=ON_NODES),
    Way("descriptor", descriptor, None, CLOSED, refused=ON_NODES, is_foreign=True),
]
