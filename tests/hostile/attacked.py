"""Services and nodes that are attacked, each in a process of its own."""

import json
from contextlib import contextmanager
from pathlib import Path

from support.scripts import started

HERE = Path(__file__).parent
SLOW = "md." + "a" * 60
"""How subjects begin that the dear patterns of `costing.py` backtrack over."""

MOST_MEMORY = 1_000_000_000
"""Bytes of a victim: libzmq takes 100 for each of the 8 MiB of keys that a connection may have."""


class Victim:
    """One of them, and what it said when it was ready, and since."""

    def __init__(self, process):
        self.process = process
        self.said = self._heard()

    def told(self):
        """Ask how it is; it is alive, and its memory bounded."""
        self.process.stdin.write("how\n")
        self.process.stdin.flush()
        self.said |= self._heard()
        assert self.said["resident"] < MOST_MEMORY, self.said
        return self.said

    def _heard(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)


@contextmanager
def victim(kind, *arguments):
    """Start one of `serving.py`."""
    with started(HERE / "serving.py", kind, *arguments) as process:
        yield Victim(process)


@contextmanager
def attacker(script, *arguments):
    """Start an attacker, and wait until it is at it; see that it has not ended by itself."""
    with started(HERE / script, *arguments) as process:
        line = process.stdout.readline()
        if line.startswith("tcp://"):
            process.endpoint = line.strip()
            line = process.stdout.readline()
        assert line == "ready\n", process.stderr.read()
        yield process
        error = process.stderr.read() if process.poll() is not None else ""
        assert not error or "cut off" in error, error
