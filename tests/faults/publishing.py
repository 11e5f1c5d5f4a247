"""Publisher in a process of its own. Commands come as JSON lines, and each has one reply.

The payload of a message is the number of the run of the publisher, the number of the message, and padding.
After every fourth message comes one with a subject that no subscriber of the tests wants.
"""

import asyncio
import json
import os
import struct
import sys
import threading
import time
from queue import Empty, SimpleQueue

import oz.publisher.aio
import oz.publisher.sync
from oz.errors import WouldBlock
from oz.options import Options

HEAD = struct.Struct(">IQ")
CHUNK_SECONDS = 0.005
"""Seconds between two groups of messages of a paced run."""


class Source:
    """Messages with consecutive numbers.

    Attributes:
        number: of the next message.
        refused: calls that raised WouldBlock.
    """

    def __init__(self, run, size, subjects):
        self.number, self.refused = 0, 0
        self._run, self._padding = run, b"." * max(0, size - HEAD.size)
        self._subjects = [f"t.{item}" for item in range(subjects)]

    def next(self):
        number = self.number
        self.number += 1
        subject = self._subjects[number % len(self._subjects)]
        return subject, HEAD.pack(self._run, number) + self._padding

    def publish(self, publish, count):
        for _ in range(count):
            try:
                publish(*self.next())
            except WouldBlock:
                self.refuse()
                continue
            if not self.number % 4:
                publish("unwanted.message", b"")

    def refuse(self):
        """Record that the last message was not published: the next one has its number."""
        self.number -= 1
        self.refused += 1

    async def publish_async(self, publish, count):
        for _ in range(count):
            try:
                await publish(*self.next())
            except WouldBlock:
                self.refuse()
                continue
            if not self.number % 4:
                await publish("unwanted.message", b"")


class Pace:
    """Messages that are due at a rate."""

    def __init__(self, rate):
        self._rate, self._began, self._made = rate, time.monotonic(), 0

    def due(self):
        count = int((time.monotonic() - self._began) * self._rate) - self._made
        # A process that was stopped does not catch up.
        if count > self._rate:
            self._began, self._made, count = time.monotonic(), 0, 1
        self._made += count
        return count


def read_commands(put):
    """Pass the lines of stdin on, in a thread, and None at its end."""

    def run():
        for line in sys.stdin:
            put(json.loads(line))
        put(None)

    threading.Thread(target=run, daemon=True).start()


_writing = threading.Lock()


def reply(**values):
    with _writing:
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()


def describe(publisher, source):
    """Return the state of the publisher, for the reply of `info`."""
    stats = publisher.stats
    return {
        "published": source.number,
        "refused": source.refused,
        "sessions": [
            {
                "state": subscriber.state,
                "pending": subscriber.pending,
                "bytes": subscriber.pending_bytes,
                "dropped": sum(subscriber.dropped.values()),
            }
            for subscriber in publisher.subscribers
        ],
        "dropped": sum(stats.dropped.values()),
        "given_up": stats.given_up,
        "redelivered": stats.redelivered,
        "rejected": stats.rejected,
        "rss": resident_bytes(),
    }


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_sync(settings, source):
    commands = SimpleQueue()
    read_commands(commands.put)
    publisher = oz.publisher.sync.Publisher(settings["bind"], **settings["arguments"])
    reply(endpoint=publisher.endpoint, links=publisher.link_endpoints[0])
    pace = None
    while True:
        if pace is not None:
            source.publish(publisher.publish, pace.due())
        try:
            command = commands.get(timeout=None if pace is None else CHUNK_SECONDS)
        except Empty:
            continue
        match command:
            case {"do": "wait"}:
                publisher.wait_for_subscribers("t.0", count=command["count"], timeout=command["timeout"])
                reply(done=True)
            case {"do": "burst"}:
                source.publish(publisher.publish, command["count"])
                publisher.flush()
                reply(published=source.number)
            case {"do": "start"}:
                pace = Pace(command["rate"])
                reply(done=True)
            case {"do": "stop"}:
                pace = None
                publisher.flush()
                reply(published=source.number)
            case {"do": "info"}:
                reply(**describe(publisher, source))
            case {"do": "close"} | None:
                left = publisher.close(timeout=5.0 if command is None else command["timeout"])
                reply(left=left, **describe(publisher, source))
                return


async def run_asyncio(settings, source):
    commands = asyncio.Queue()
    loop = asyncio.get_running_loop()
    read_commands(lambda command: loop.call_soon_threadsafe(commands.put_nowait, command))
    publisher = oz.publisher.aio.Publisher(settings["bind"], **settings["arguments"])
    reply(endpoint=publisher.endpoint, links=publisher.link_endpoints[0])
    pace = None
    while True:
        if pace is not None:
            await source.publish_async(publisher.publish, pace.due())
        try:
            async with asyncio.timeout(None if pace is None else CHUNK_SECONDS):
                command = await commands.get()
        except TimeoutError:
            continue
        match command:
            case {"do": "wait"}:
                await publisher.wait_for_subscribers(
                    "t.0", count=command["count"], timeout=command["timeout"]
                )
                reply(done=True)
            case {"do": "burst"}:
                await source.publish_async(publisher.publish, command["count"])
                await publisher.flush()
                reply(published=source.number)
            case {"do": "start"}:
                pace = Pace(command["rate"])
                reply(done=True)
            case {"do": "stop"}:
                pace = None
                await publisher.flush()
                reply(published=source.number)
            case {"do": "info"}:
                reply(**describe(publisher, source))
            case {"do": "close"} | None:
                left = await publisher.close(timeout=5.0 if command is None else command["timeout"])
                reply(left=left, **describe(publisher, source))
                return


def main():
    settings = json.loads(sys.argv[1])
    settings["arguments"]["options"] = Options(**settings["arguments"].pop("options", {}))
    source = Source(settings["run"], settings["size"], settings["subjects"])
    if settings["kind"] == "sync":
        run_sync(settings, source)
    else:
        asyncio.run(run_asyncio(settings, source))


if __name__ == "__main__":
    main()
