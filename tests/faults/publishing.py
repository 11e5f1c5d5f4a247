"""Publisher in a process of its own. Commands come as JSON lines, and each has one reply.

The payload of a message is the number of the run of the publisher, the number of the message, and padding.
After every fourth message comes one with a subject that no subscriber of the tests wants.
"""

import json
import struct
import sys
import threading
import time
from queue import Empty, SimpleQueue

from oz.options import Options
from support.shells import SHELLS, Blocking

HEAD = struct.Struct(">IQ")
CHUNK_SECONDS = 0.005
"""Seconds between two groups of messages of a paced run."""


class Source:
    """Messages with consecutive numbers.

    Attributes:
        number: of the next message.
    """

    def __init__(self, run, size, subjects):
        self.number = 0
        self._run, self._padding = run, b"." * max(0, size - HEAD.size)
        self._subjects = [f"t.{item}" for item in range(subjects)]

    def messages(self, count):
        """Yield subject and payload of the next messages."""
        for number in range(self.number, self.number + count):
            self.number = number + 1
            yield self._subjects[number % len(self._subjects)], HEAD.pack(self._run, number) + self._padding
            if not self.number % 4:
                yield "unwanted.message", b""


def publish_sync(publisher, messages):
    for message in messages:
        publisher.publish(*message)


async def publish_asyncio(publisher, messages):
    for message in messages:
        await publisher.publish(*message)


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
        "sessions": [{"state": item.state, "pending": item.pending} for item in publisher.subscribers],
        "dropped": sum(stats.dropped.values()),
        "given_up": stats.given_up,
    }


def open_publisher(kind, *arguments, **options):
    """Return a publisher, and a function that publishes messages."""
    shell = SHELLS[kind]()
    made = Blocking(shell, shell.call(shell.module.Publisher, *arguments, **options))
    work = publish_sync if kind == "sync" else publish_asyncio
    return made, lambda messages: shell.call(work, made.raw, messages)


def run(settings, source):
    commands = SimpleQueue()
    read_commands(commands.put)
    publisher, publish = open_publisher(settings["kind"], settings["bind"], **settings["arguments"])
    reply(endpoint=publisher.endpoint, links=publisher.link_endpoints[0])
    pace = None
    while True:
        if pace is not None:
            publish(source.messages(pace.due()))
        try:
            command = commands.get(timeout=None if pace is None else CHUNK_SECONDS)
        except Empty:
            continue
        match command:
            case {"do": "wait"}:
                publisher.wait_for_subscribers("t.0", count=command["count"], timeout=command["timeout"])
                reply(done=True)
            case {"do": "burst"}:
                publish(source.messages(command["count"]))
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
            case None:
                publisher.close(timeout=5.0)
                return


def main():
    settings = json.loads(sys.argv[1])
    settings["arguments"]["options"] = Options(**settings["arguments"].pop("options", {}))
    run(settings, Source(settings["run"], settings["size"], settings["subjects"]))


if __name__ == "__main__":
    main()
