"""Subscribers in a process of their own, one thread for each. Those of asyncio share a loop.

Each subscriber writes what it receives into a file, one line for each event:

- `m RUN NUMBER`: a message;
- `r RUN NUMBER`: a redelivered message;
- `g COUNT REASON`: a gap, with `?` for an unknown count;
- `u SUBJECT`: a message that matches no pattern of the subscriber.

Lines of messages with a handler end with the time of the handler in seconds. They are written before the
handler returns, so that a kill of the process loses none of them.
"""

import json
import os
import sys
import threading
import time
from queue import Empty, SimpleQueue

from faults.publishing import HEAD, read_commands, reply
from oz.errors import ClosedError, Timeout
from oz.options import Delivery, Options
from support.shells import SHELLS, Blocking

DRAIN_SECONDS = 60.0
READY_SECONDS = 150.0
CALL_SECONDS = 0.05
"""Seconds that one call waits for messages before the program looks for a command."""


class Log:
    """The events of one subscriber, in order."""

    def __init__(self, path, *, is_unbuffered):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lines, self._is_unbuffered = [], is_unbuffered
        # Handlers of asyncio run in the loop, and the thread of the role flushes.
        self._lock = threading.RLock()

    def _add(self, line):
        with self._lock:
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
        with self._lock:
            if self._lines:
                os.write(self._file, ("\n".join(self._lines) + "\n").encode())
                self._lines.clear()


def receive_sync(subscriber, log):
    for _ in range(100):
        log.message(subscriber.receive(timeout=CALL_SECONDS))


async def receive_asyncio(subscriber, log):
    # In the loop, so that a gap is written in its place.
    for _ in range(100):
        log.message(await subscriber.receive(timeout=CALL_SECONDS))


def run_role(role, commands, shell):
    log = Log(role["log"], is_unbuffered=role["has_handler"])
    made = shell.call(
        shell.module.Subscriber,
        role["endpoint"],
        links=role["links"],
        filtering=role["filtering"],
        on_gap=log.gap,
        options=Options(**role["options"]),
    )
    subscriber = Blocking(shell, made)
    receive = receive_sync if shell.name == "sync" else receive_asyncio
    handler = log.message if role["has_handler"] else None
    subscriber.subscribe("t.*", handler, delivery=Delivery(**role["delivery"]), **role["subscription"])
    subscriber.wait_ready(timeout=READY_SECONDS)
    reply(role=role["name"], ready=True)
    while True:
        try:
            command = commands.get_nowait()
        except Empty:
            try:
                shell.call(receive, made, log)
            except Timeout:
                log.flush()
            continue
        if command["do"] != "pause":
            break
        reply(role=role["name"], paused=True)
        commands.get()
    if command["do"] == "drain":
        subscriber.drain(timeout=DRAIN_SECONDS)
        try:
            while True:
                log.message(subscriber.receive(timeout=0))
        except (Timeout, ClosedError):
            log.flush()
    reply(role=role["name"], delivered=subscriber.stats.delivered)
    subscriber.close()


def run(roles, shell):
    queues = {role["name"]: SimpleQueue() for role in roles}

    def pass_on(command):
        if command is None:
            for queue in queues.values():
                queue.put({"do": "close"})
        else:
            queues[command["role"]].put(command)

    read_commands(pass_on)
    threads = [threading.Thread(target=run_role, args=(role, queues[role["name"]], shell)) for role in roles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    settings = json.loads(sys.argv[1])
    run(settings["roles"], SHELLS[settings["kind"]]())


if __name__ == "__main__":
    main()
