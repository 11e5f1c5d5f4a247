"""Kill a writer again and again, and look at what is left each time.

    python crashing.py DIRECTORY ROUNDS SEED

In each round a child process opens the journal, appends, and is killed with SIGKILL: in half of the rounds by
itself before, within or after a system call that changes a file, in the others from outside at a random time.
Then what readers saw, what was acknowledged and what recovery leaves are compared.
"""

import json
import logging
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

from oz.journal import Journal, Writer

# Python 3.12 and later warn of any fork beside a thread; the writer of this process is closed by then.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

CHANGING = ("write", "pwrite", "fsync", "rename", "ftruncate", "unlink", "open")
OPTIONS = (
    {"segment_bytes": 30_000},
    {"segment_bytes": 5_000, "sync": "interval", "sync_seconds": 0.001},
    {"segment_bytes": 100_000, "sync": "never"},
)


def content(seed, number, offset):
    choice = random.Random(f"{seed} {number} {offset}")
    return f"round{number}.{choice.randrange(50)}", choice.randbytes(choice.choice([0, 10, 100, 700]))


def kill_in(calls, names, chance):
    """Kill this process in the given number of calls of these functions of `os`."""
    left = calls

    def wrapped(name):
        real = getattr(os, name)

        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left <= 0:
                when = chance.choice(["before", "within", "after"])
                if name == "write" and (when == "within" or names == ("write",)):
                    descriptor, data = arguments
                    real(descriptor, bytes(data)[: chance.randrange(len(data) + 1)])
                elif when == "after":
                    real(*arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in names:
        setattr(os, name, wrapped(name))


def write_until_killed(directory, seed, number, acknowledge, by_itself):
    chance = random.Random(f"{seed} {number}")
    say = os.write  # not the one that kills
    if by_itself:
        if chance.random() < 0.3:
            kill_in(chance.randrange(1, 30), ("write",), chance)
        else:
            kill_in(chance.randrange(1, 120), CHANGING, chance)
    writer = Writer(directory, **chance.choice(OPTIONS))
    say(acknowledge, b"%d\n" % writer.end_offset)
    while True:
        start = writer.end_offset
        group = chance.choice([1, 1, 3, 40, 300])
        end = writer.append(content(seed, number, start + at) for at in range(group))
        say(acknowledge, b"%d\n" % end)


def kill(directory, seed, number):
    """Let a child write until it is killed; the offsets that were acknowledged."""
    by_itself = number % 2 == 0
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_until_killed(directory, seed, number, writable, by_itself)
        finally:
            os._exit(1)
    os.close(writable)
    with os.fdopen(readable, "rb") as lines:
        if not by_itself:
            lines.readline()
            time.sleep(random.random() * 0.05)  # not to wait for anything: to strike anywhere
            os.kill(child, signal.SIGKILL)
        acknowledged = [int(line) for line in lines]
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the writer failed in round {number}"
    return acknowledged


def main(directory, rounds, seed):
    logging.disable()
    expected = []
    cuts = extra = 0
    for number in range(rounds):
        acknowledged = kill(directory, seed, number)
        started = len(expected)
        before = [(r.offset, r.subject, r.payload) for r in Journal(directory).read()] if expected else []
        with Writer(directory) as writer:
            cuts += any(finding.cut_bytes for finding in writer.findings)
            end = writer.end_offset
        journal = Journal(directory)
        found = [(r.offset, r.subject, r.payload) for r in journal.read()]
        expected += [(at, *content(seed, number, at)) for at in range(started, end)]
        assert found == expected, f"round {number}: not what was written"
        assert end >= max(acknowledged, default=started), f"round {number}: acknowledged records are lost"
        assert before == expected[: len(before)], f"round {number}: a reader saw what is not there any more"
        extra += end - max(acknowledged, default=started)
        assert journal.verify().ok, f"round {number}: {journal.verify().findings}"
    streams = len(list(Path(directory).glob("*.arrows")))
    print(json.dumps({"records": len(expected), "cuts": cuts, "unacknowledged": extra, "streams": streams}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
