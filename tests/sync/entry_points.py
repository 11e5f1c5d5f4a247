"""Use publishers by every way that pyzmq has into C, beside subscribers that come and go.

Run as `python entry_points.py SECONDS [WAY…]`; it says "survived". See test_entry_points.py.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import zmq
import zmq.asyncio
from zmq.devices import monitored_queue

import oz

DEADLINE = 30.0
_TOPICS = ("a.", "b.", "c.")
IsOver = Callable[[], bool]


def churn(endpoints: list[str], is_over: IsOver) -> None:
    """Connect subscribers of each kind to all publishers, and close them, again and again."""
    with zmq.Context() as context:
        # Closed ones count until they are reaped.
        context.set(zmq.MAX_SOCKETS, 10_000)
        while not is_over():
            subs: list[zmq.Socket[bytes]] = [context.socket(zmq.SUB) for _ in range(3)]
            subs.append(oz.Subscriber(filtering="publisher", context=context))
            for number, sub in enumerate(subs):
                sub.linger = 0
                sub.subscribe(_TOPICS[number % 3].encode())
                for endpoint in endpoints:
                    sub.connect(endpoint)
            subs[-1].poll(1)
            for sub in subs:
                sub.close()


def publish(pub: oz.Publisher, is_over: IsOver) -> None:
    """Publish as applications do."""
    while not is_over():
        for number in range(50):
            pub.publish(f"a.{number}", b"x")
        time.sleep(0.002)


def send(pub: oz.Publisher, is_over: IsOver) -> None:
    """Send by the calls of pyzmq."""
    while not is_over():
        pub.send_multipart([b"a.1", b"x"])
        pub.send_string("b.1")
        pub.send(b"c.1", copy=False)
        time.sleep(0.0005)


def poll(pub: oz.Publisher, is_over: IsOver) -> None:
    """Ask whether it can send, by `Socket.poll`."""
    while not is_over():
        assert pub.poll(1, zmq.POLLOUT) == zmq.POLLOUT
        assert pub.poll(1, zmq.POLLIN) == 0


def poller(pub: oz.Publisher, is_over: IsOver) -> None:
    """The same by `zmq.Poller`, and by oz's own."""
    pollers = [zmq.Poller(), oz.Poller()]
    for one in pollers:
        one.register(pub, zmq.POLLIN | zmq.POLLOUT)
    while not is_over():
        for one in pollers:
            assert one.poll(1) == [(pub, zmq.POLLOUT)]


def select(pub: oz.Publisher, is_over: IsOver) -> None:
    """The same by `zmq.select`."""
    while not is_over():
        assert zmq.select([pub], [], [pub], 0.002) == ([], [], [])
        assert zmq.select([pub], [pub], [], 0.002) == ([], [pub], [])


def events(pub: oz.Publisher, is_over: IsOver) -> None:
    """Ask for EVENTS, as event loops do when the file descriptor has news."""
    descriptor = pub.fileno()
    while not is_over():
        assert pub.getsockopt(zmq.EVENTS) == pub.events == zmq.POLLOUT
        assert pub.fileno() == descriptor
        time.sleep(0)


def asyncio_poller(pub: oz.Publisher, is_over: IsOver) -> None:
    """Poll in asyncio, which makes a shadow of the socket each time."""

    async def run() -> None:
        one = zmq.asyncio.Poller()
        one.register(pub, zmq.POLLIN)
        while not is_over():
            assert await one.poll(2) == []

    asyncio.run(run())


def shadow(pub: oz.Publisher, is_over: IsOver) -> None:
    """Send by a shadow of the socket."""
    one = zmq.Socket.shadow(pub.underlying)
    while not is_over():
        one.send_multipart([b"a.1", b"x"])
        time.sleep(0.0002)


def monitor(pub: oz.Publisher, is_over: IsOver) -> None:
    """Watch connections come and go."""
    seen = pub.get_monitor_socket()
    while not is_over():
        if seen.poll(2):
            seen.recv_multipart()
    pub.disable_monitor()
    seen.close()


def _through(pub: oz.Publisher, is_over: IsOver, device: Callable[[zmq.Socket[bytes]], object]) -> None:
    """Have a device of libzmq send into the publisher; the end of its context ends it."""
    context = pub.context
    source, incoming = context.socket(zmq.PUB), context.socket(zmq.SUB)
    source.linger = incoming.linger = 0
    endpoint = f"inproc://source-{id(source)}"
    source.bind(endpoint)
    incoming.subscribe(b"")
    incoming.connect(endpoint)

    def feed() -> None:
        while not is_over():
            source.send_multipart([b"a.1", b"x"])
            time.sleep(0.0002)
        source.close()
        context.term()

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    with suppress(zmq.ContextTerminated):
        device(incoming)
    incoming.close()
    pub.close()
    feeding.join()


def proxy(pub: oz.Publisher, is_over: IsOver) -> None:
    """`zmq.proxy` from a SUB to the publisher."""
    _through(pub, is_over, lambda incoming: zmq.proxy(incoming, pub))


def queue(pub: oz.Publisher, is_over: IsOver) -> None:
    """`monitored_queue` from a SUB to the publisher."""
    # Made here: the context may end before the device begins.
    side = pub.context.socket(zmq.PUB)

    def device(incoming: zmq.Socket[bytes]) -> None:
        with side:
            monitored_queue(incoming, pub, side)

    _through(pub, is_over, device)


WAYS: dict[str, Callable[[oz.Publisher, IsOver], None]] = {
    one.__name__: one
    for one in (
        publish, send, poll, poller, select, events, asyncio_poller, shadow, monitor, proxy, queue,
    )
}  # fmt: skip


def main(seconds: float, ways: list[str]) -> None:
    """Use all publishers at once, each in a thread of its own."""
    ends = time.monotonic() + seconds

    def is_over() -> bool:
        return time.monotonic() >= ends

    publishers = {name: oz.Publisher("tcp://127.0.0.1:*", context=zmq.Context()) for name in ways}
    endpoints = [one.endpoint for one in publishers.values()]
    works = {name: partial(WAYS[name], one, is_over) for name, one in publishers.items()}
    # In a process of its own, where nothing waits for the interpreter that all the others share.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    churning = subprocess.Popen(
        [sys.executable, __file__, str(seconds), "churn", *endpoints], env=environment
    )
    failed: list[str] = []

    def run(name: str) -> None:
        try:
            works[name]()
        except BaseException:
            failed.append(f"{name}: {traceback.format_exc()}")

    threads = [threading.Thread(target=run, args=(name,), name=name, daemon=True) for name in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + DEADLINE)
    failed += [f"{thread.name} is stuck" for thread in threads if thread.is_alive()]
    if churning.wait(seconds + DEADLINE):
        failed.append("the subscribers failed")
    if failed:
        # Whatever still waits is not waited for.
        print("\n".join(failed), flush=True)
        os._exit(1)
    for publisher in publishers.values():
        publisher.close(linger=0)
        publisher.context.term()
    print("survived")


if __name__ == "__main__":
    length, names = float(sys.argv[1]), sys.argv[2:] or list(WAYS)
    if names[0] == "churn":
        over = time.monotonic() + length
        churn(names[1:], lambda: time.monotonic() >= over)
    else:
        main(length, names)
