"""Receivers of every kind, each at work in a thread or in a task of a loop, and who publishes to them."""

import asyncio
import importlib
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from itertools import count

import pytest

import oz
import oz.asyncio
from matrix.ways import OVER
from support.ports import lasting_endpoint, lasting_udp_port
from support.waiting import DEADLINE, Thread, until

LONG = 60.0
"""Timeout in seconds for receivers that must not time out."""
SUBJECT = "m.x"
HELLO = b"hello"
MULTICAST = oz.Multicast(rate_kbps=100_000, recovery=10.0, stale_after=30)
OPTIONS = {
    "prefix": {"filtering": "prefix"},
    "publisher": {"filtering": "publisher"},
    "auto": {},
    "multicast": {"options": oz.Options(multicast=MULTICAST)},
}
NODES = ("node", "asyncio node")


def is_node(one):
    return isinstance(one, (oz.Node, oz.asyncio.Node))


class Receiver:
    """Receiver of one kind: received numbers, its end, and a callback for the first message."""

    def __init__(self, way, patience):
        self.way = way
        self.patience = patience
        self.got = []
        self.heard = threading.Event()
        self.end = None
        self.at_first = None

    def take(self, payload):
        self.heard.set()
        if payload == HELLO:
            return
        self.got.append(int(payload))
        if self.at_first is not None and len(self.got) == 1:
            self.at_first()

    def handle(self, message):
        self.take(message.payload)

    def subscribed(self, sub):
        """Subscribe; give what is received from."""
        handler = {"handler": self.handle} if self.way.handles else {}
        self.subscription = sub.subscribe("m.*", **handler)
        return self.subscription if is_node(sub) or self.way.is_own else sub

    @property
    def drained(self):
        """What is drained: of a node one subscription, of a socket all."""
        return self.subscription if is_node(self.sub) else self.sub


class Blocking(Receiver):
    """One in a thread."""

    def __init__(self, sub, way, patience):
        super().__init__(way, patience)
        self.sub = sub
        self._source = self.subscribed(sub)
        self._others = []

    def start(self):
        self._thread = Thread(self._work)

    def _work(self):
        if is_node(self.sub) and self.way.handles:
            return
        try:
            self.way.blocking(self._source, self.take, self.patience)
            self.end = OVER
        except Exception as error:
            self.end = error

    def drain_at_first(self):
        """Drain in another thread after the first message."""
        self.at_first = lambda: self._others.append(Thread(self.drained.drain))

    def close_from_elsewhere(self):
        """Close from the thread of the test."""
        self.sub.close()

    def dispose(self):
        self.sub.close(**({"timeout": 1.0} if is_node(self.sub) else {}))
        for thread in (self._thread, *self._others):
            thread.outcome()


class Awaited(Receiver):
    """One in a task of a loop that runs in another thread."""

    def __init__(self, loop, make, way, patience):
        super().__init__(way, patience)
        self._loop = loop
        self._make = make
        self._drained = None
        self.task = None

    def start(self):
        self._loop.run(self._begin())

    async def _begin(self):
        if self.task is None:
            self.sub = self._make()
            self._source = self.subscribed(self.sub)
        self.task = asyncio.create_task(self._work())

    async def _work(self):
        if is_node(self.sub) and self.way.handles:
            return
        try:
            await self.way.awaited(self._source, self.take, self.patience)
            self.end = OVER
        except Exception as error:
            self.end = error

    def cancel(self):
        """Cancel the task, and begin again."""
        self._loop.run(self._cancel())

    async def _cancel(self):
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        if self.end is None:
            self.task = asyncio.create_task(self._work())

    def drain_at_first(self):
        """Have another task drain after the first message, or while it waits for more."""

        def begin():
            self._drained = asyncio.create_task(self._drain())

        self.at_first = begin

    async def _drain(self):
        await self.drained.drain()

    def close_from_elsewhere(self):
        self._loop.run(self._close())

    async def _close(self):
        await self.sub.close()

    def dispose(self):
        self._loop.run(self._dispose())

    async def _dispose(self):
        if self._drained is not None:
            await self._drained
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        await self.sub.close(**({"timeout": 1.0} if is_node(self.sub) else {}))


class Loop:
    """An event loop in a thread."""

    def __init__(self, make):
        self._loop = make()
        self._thread = Thread(self._loop.run_forever)

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE)

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.outcome()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def loop_of(shell):
    if shell != "uvloop":
        return Loop(asyncio.new_event_loop)
    pytest.importorskip("uvloop")
    return Loop(importlib.import_module("uvloop").new_event_loop)


class Scene(ExitStack):
    """A publisher and a receiver for each way, of one kind of shell and filtering."""

    def __init__(self, shell, filtering):
        super().__init__()
        self.shell, self.filtering = shell, filtering
        self._numbers = count()
        self.published = 0
        self.receivers = []
        if shell in NODES:
            self.directory = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
            self.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._endpoint = (
            f"epgm://lo;239.192.7.3:{lasting_udp_port()}" if filtering == "multicast" else lasting_endpoint()
        )
        self._loop = None
        if shell not in ("sync", "node"):
            self._loop = loop_of(shell)
            self.callback(self._loop.close)
        self.open_publisher()
        self.callback(self.end)

    def open_publisher(self):
        if self.shell in NODES:
            self.publisher = oz.Node("source", codec=None, options=oz.NodeOptions(directory=self.directory))
        else:
            options = oz.Options(multicast=MULTICAST if self.filtering == "multicast" else None)
            self.publisher = oz.Publisher(self._endpoint, options=options)

    def restart_publisher(self):
        # All messages have arrived. A multicast publisher stays for the whole timeout, for repairs.
        self.publisher.close(timeout=0.5 if self.filtering == "multicast" else DEADLINE)
        self.open_publisher()
        self.meet()

    def make(self):
        """Make the socket or node of a receiver."""
        place = oz if self._loop is None else oz.asyncio
        if self.shell in NODES:
            options = oz.NodeOptions(directory=self.directory)
            return place.Node(f"n{next(self._numbers)}", codec=None, options=options)
        return place.Subscriber(self._endpoint, **OPTIONS[self.filtering])

    def receive(self, ways, patience=LONG):
        """Have a receiver of each way at work, and wait until what is published arrives at all."""
        for way in ways:
            if self._loop is None:
                receiver = Blocking(self.make(), way, patience)
            else:
                receiver = Awaited(self._loop, self.make, way, patience)
            self.receivers.append(receiver)
            receiver.start()
        self.meet()

    def meet(self):
        """Publish greetings until each has heard one: from then on all arrives."""
        for receiver in self.receivers:
            receiver.heard.clear()

        def have_heard():
            self.publisher.publish(SUBJECT, HELLO)
            self.publisher.flush()
            time.sleep(0.005)
            return all(one.heard.is_set() or one.end is not None for one in self.receivers)

        until(have_heard)

    def sleep(self, seconds):
        time.sleep(seconds)

    def publish(self, number, pause=0.0):
        for _ in range(number):
            self.publisher.publish(SUBJECT, b"%d" % self.published)
            self.published += 1
            if pause:
                self.publisher.flush()
                time.sleep(pause)
        self.publisher.flush()

    def publish_at_once(self, number):
        """Publish as one batch, so that a subscriber over a link receives it as a whole."""
        pairs = [(SUBJECT, b"%d" % (self.published + place)) for place in range(number)]
        self.published += number
        if is_node(self.publisher):
            for subject, payload in pairs:
                self.publisher.publish(subject, payload)
        else:
            self.publisher.publish_many(pairs)
        self.publisher.flush()

    def end(self):
        try:
            for receiver in self.receivers:
                receiver.dispose()
        finally:
            self.publisher.close(timeout=1.0)

    def outcomes(self, is_right):
        """Wait until each receiver is right, or has ended, or time is over; tell of the wrong ones."""
        with suppress(AssertionError):
            until(lambda: all(is_right(one) or one.end is not None for one in self.receivers))
        return {
            one.way.name: f"{len(one.got)} of {self.published} came, {disorder(one.got)}, end: {one.end!r}"
            for one in self.receivers
            if not is_right(one)
        }


def disorder(got):
    wrong = [place for place, number in enumerate(got) if number != place]
    return f"wrong from {wrong[0]}: {got[wrong[0] - 1 : wrong[0] + 3]}" if wrong else "in order"
