"""The ways to wait for messages of subscribers, and of the subscriptions of nodes."""

import zmq

import oz
from support.waiting import DEADLINE


def iterate(sub):
    return next(iter(sub))


def poll(sub):
    assert sub.poll(1000 * DEADLINE) == zmq.POLLIN
    sub.recv_multipart(zmq.NOBLOCK)


def poll_by_oz(sub):
    poller = oz.Poller()
    poller.register(sub, zmq.POLLIN)
    assert poller.poll(1000 * DEADLINE) == [(sub, zmq.POLLIN)]
    sub.recv_multipart(zmq.NOBLOCK)


def within_rcvtimeo(sub):
    sub.rcvtimeo = round(1000 * DEADLINE)
    sub.recv_multipart()


async def first_of(messages):
    async for message in messages:
        return message


async def poll_in_loop(sub):
    assert await sub.poll(1000 * DEADLINE) == zmq.POLLIN
    await sub.recv_multipart(zmq.NOBLOCK)


OF_NODES = {
    "receive": lambda sub: sub.receive(),
    "receive within": lambda sub: sub.receive(timeout=DEADLINE),
    "iteration": iterate,
}
"""Those that the subscriptions of nodes have, which others have too."""

OF_MESSAGES = OF_NODES | {
    "receive_many": lambda sub: sub.receive_many(),
    "receive_batches": lambda sub: sub.receive_batches(),
    "run": lambda sub: sub.run(),
}
"""Those that are oz's own."""

ALL = OF_MESSAGES | {
    "run within": lambda sub: sub.run(timeout=DEADLINE),
    "recv_multipart": lambda sub: sub.recv_multipart(),
    "recv": lambda sub: sub.recv(),
    "recv within": within_rcvtimeo,
    "poll": poll,
    "oz.Poller": poll_by_oz,
}

OF_NODES_IN_LOOP = OF_NODES | {"iteration": first_of}
OF_MESSAGES_IN_LOOP = OF_MESSAGES | {"iteration": first_of}
ALL_IN_LOOP = OF_MESSAGES_IN_LOOP | {"recv_multipart": lambda sub: sub.recv_multipart(), "poll": poll_in_loop}
"""The same in a loop, where each gives something to await."""
