"""Subscribers in a process of their own, one thread or one task for each.

Each subscriber writes what it receives into a file, one line for each event:

- `m RUN NUMBER`: a message;
- `r RUN NUMBER`: a redelivered message;
- `g COUNT REASON`: a gap, with `?` for an unknown count;
- `u SUBJECT`: a message that matches no pattern of the subscriber.

Lines of messages with a handler end with the time of the handler in seconds. They are written before the
handler returns, so that a kill of the process loses none of them.
"""

import asyncio
import json
import os
import sys
import threading
import time
from queue import Empty, SimpleQueue

import oz.subscriber.aio
import oz.subscriber.sync
from faults.publishing import HEAD, read_commands, reply, resident_bytes
from oz.errors import ClosedError, Timeout
from oz.options import Delivery, Options

DRAIN_SECONDS = 60.0
READY_SECONDS = 150.0
CALL_SECONDS = 0.05
"""Seconds that one call waits for messages before the program looks for a command."""


class Log:
    """The events of one subscriber, in order."""

    def __init__(self, path, *, is_unbuffered):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lines, self._is_unbuffered = [], is_unbuffered

    def _add(self, line):
        self._lines.append(line)
        if self._is_unbuffered or len(self._lines) >= 4_096:
            self.flush()

    def message(self, message):
        if not message.subject.startswith("t."):
            self._add(f"u {message.subject}")
            return
        run, number = HEAD.unpack_from(message.payload)
        when = f" {time.monotonic():.4f}" if self._is_unbuffered else ""
        self._add(f"{'r' if message.redelivered else 'm'} {run} {number}{when}")

    def gap(self, gap):
        self._add(f"g {'?' if gap.count is None else gap.count} {gap.reason}")

    def flush(self):
        if self._lines:
            os.write(self._file, ("\n".join(self._lines) + "\n").encode())
            self._lines.clear()


def subscriber_of(role, kind, log):
    """Create the subscriber of a role, with its subscription."""
    subscriber = kind(
        role["endpoint"],
        links=role["links"],
        filtering=role["filtering"],
        on_gap=log.gap,
        options=Options(**role["options"]),
    )
    handler = log.message if role["has_handler"] else None
    delivery = Delivery(**role["delivery"])
    subscription = subscriber.subscribe("t.*", handler, delivery=delivery, **role["subscription"])
    return subscriber, subscription


def result(role, subscriber, subscription):
    stats = subscriber.stats
    return {
        "role": role["name"],
        "delivered": stats.delivered,
        "lost": stats.lost,
        "full": stats.dropped,
        "repeated": stats.repeated,
        "dropped": subscription.dropped,
        "rss": resident_bytes(),
    }


def run_thread(role, commands):
    log = Log(role["log"], is_unbuffered=role["has_handler"])
    subscriber, subscription = subscriber_of(role, oz.subscriber.sync.Subscriber, log)
    subscriber.wait_ready(timeout=READY_SECONDS)
    reply(role=role["name"], ready=True)
    while True:
        try:
            command = commands.get_nowait()
        except Empty:
            try:
                log.message(subscriber.receive(timeout=CALL_SECONDS))
            except Timeout:
                log.flush()
            continue
        if command["do"] == "pause":
            reply(role=role["name"], paused=True)
            commands.get()
        elif command["do"] == "size":
            log.flush()
            reply(role=role["name"], rss=resident_bytes())
        else:
            break
    if command["do"] == "drain":
        subscriber.drain(timeout=DRAIN_SECONDS)
        try:
            while True:
                log.message(subscriber.receive(timeout=0))
        except (Timeout, ClosedError):
            log.flush()
    reply(**result(role, subscriber, subscription))
    subscriber.close()


async def run_task(role, commands):
    log = Log(role["log"], is_unbuffered=role["has_handler"])
    subscriber, subscription = subscriber_of(role, oz.subscriber.aio.Subscriber, log)
    await subscriber.wait_ready(timeout=READY_SECONDS)
    reply(role=role["name"], ready=True)
    while True:
        try:
            command = commands.get_nowait()
        except asyncio.QueueEmpty:
            try:
                log.message(await subscriber.receive(timeout=CALL_SECONDS))
            except Timeout:
                log.flush()
            continue
        if command["do"] == "pause":
            reply(role=role["name"], paused=True)
            await commands.get()
        elif command["do"] == "size":
            log.flush()
            reply(role=role["name"], rss=resident_bytes())
        else:
            break
    if command["do"] == "drain":
        await subscriber.drain(timeout=DRAIN_SECONDS)
        try:
            while True:
                log.message(await subscriber.receive(timeout=0))
        except (Timeout, ClosedError):
            log.flush()
    reply(**result(role, subscriber, subscription))
    await subscriber.close()


def run_threads(roles):
    queues = {role["name"]: SimpleQueue() for role in roles}
    commands = SimpleQueue()
    read_commands(commands.put)
    threads = [threading.Thread(target=run_thread, args=(role, queues[role["name"]])) for role in roles]
    for thread in threads:
        thread.start()

    def pass_on():
        while (command := commands.get()) is not None:
            queues[command["role"]].put(command)
        for queue in queues.values():
            queue.put({"do": "close"})

    threading.Thread(target=pass_on, daemon=True).start()
    for thread in threads:
        thread.join()


async def run_tasks(roles):
    queues = {role["name"]: asyncio.Queue() for role in roles}
    loop = asyncio.get_running_loop()

    def pass_on(command):
        if command is None:
            for queue in queues.values():
                queue.put_nowait({"do": "close"})
        else:
            queues[command["role"]].put_nowait(command)

    read_commands(lambda command: loop.call_soon_threadsafe(pass_on, command))
    await asyncio.gather(*(run_task(role, queues[role["name"]]) for role in roles))


def main():
    settings = json.loads(sys.argv[1])
    if settings["kind"] == "sync":
        run_threads(settings["roles"])
    else:
        asyncio.run(run_tasks(settings["roles"]))


if __name__ == "__main__":
    main()
