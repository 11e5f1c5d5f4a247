"""A stage for tests of several hosts: actors, and programs of oz, in processes on hosts of a network."""

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.scripts import ENVIRONMENT
from support.waiting import Thread, until

ACTOR = Path(__file__).with_name("actor.py")
LONGEST = 90.0


class Remote:
    """Proxy of an actor on a host: it calls methods of the actor."""

    def __init__(self, host, kind, options):
        self._process = subprocess.Popen(
            host.command(sys.executable, ACTOR, kind, json.dumps(options)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        assert self._answer() == "ready"

    def __getattr__(self, what):
        return lambda *arguments: self._ask(what, *arguments)

    def _ask(self, *words):
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = Thread(self._process.stdout.readline).outcome(LONGEST)
        assert line, f"the actor ended with {self._process.wait(LONGEST)}"
        return json.loads(line)

    def kill(self):
        self._process.kill()
        self._process.communicate()


def _read_until(stream, word):
    """Read lines up to one with this word, or all; warnings come before it."""
    said = ""
    for line in stream:
        said += line
        if word in line:
            break
    return said


class Stage:
    """Actors and commands, which are killed at the end."""

    def __init__(self, stack):
        self._stack = stack

    def actor(self, host, kind, **options):
        if kind == "Node":
            # Its own directory, so that nodes find each other by the network only.
            made = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="oz", dir="/tmp"))
            options = {"directory": f"{made}/bus", "join_timeout": 60.0, **options}
        actor = Remote(host, kind, options)
        self._stack.callback(actor.kill)
        return actor

    def command(self, host, *words):
        """Run `oz` there until the end, and wait until it is ready."""
        process = subprocess.Popen(
            host.command(sys.executable, "-m", "oz", *words),
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self._stack.callback(process.communicate)
        self._stack.callback(process.kill)
        said = Thread(lambda: _read_until(process.stderr, "ready")).outcome(LONGEST)
        assert "ready" in said, said


@contextmanager
def stage():
    with ExitStack() as stack:
        yield Stage(stack)


def accounted(listener, sent, source=""):
    """Wait until each message was delivered or reported lost; return the counts of the listener.

    A loss may have no count. No message is delivered twice or out of order.
    """

    def all_there():
        got.update(listener.got(source))
        is_told = got["uncounted"] > 0 and got["latest"] == sent - 1
        return is_told or got["delivered"] + got["lost"] == sent

    got = {}
    try:
        until(all_there, LONGEST)
    finally:
        print(f"of {sent}: {got}")
    assert got["disorder"] == 0
    assert got["delivered"] + got["lost"] <= sent
    return got
