"""Services and nodes that are attacked, each in a process of its own.

Which attack has a test against which victim, in the suite (S) or in the heavy run (H). Sockets and nodes come
in two kinds, of threads and of asyncio; where both have a letter the first is of threads.

| attack | sockets | nodes | forwarder | gateway | recorder | where |
| --- | --- | --- | --- | --- | --- | --- |
| says goodbye for another | S, H | S, H | H | | | subscriptions, bus |
| forged place of a publisher | H, S | H, S | H | | S | forged_origins, bus, services |
| stays ahead of a publisher | S, H | | | | | forged_origins |
| forged goodbyes of a publisher | S, H | H, H | H | | H | forged_origins, bus, services |
| many names of publishers | S | H, H | H | | | forged_origins, bus |
| control records without end | S, S | | | | | control_floods |
| introductions | | S | | | | introductions |
| answers that nobody asked for | | S and H, H | H | | | replies, bus |
| dear regexes | S, H | H, H | H | H | | pattern_cost, bus, services |
| heavy regexes | S | H, H | H | H | | pattern_cost, bus, services |
| declarations without end | S, H | H, H | S | H | | subscriptions, bus, services |
| more streams than one may have | H, S | H, H | H | H | | the same |
| long plain subscriptions | H, S | H, H | H | S | | the same |
| chunks that ask for nothing | S, H | H, H | H | H | | the same |
| reads nothing | S, S | H, H | H | H | | the same |
| 200 members of a group | S, H | | | | | subscriptions |
| is refused what another has | H, S | | | | | subscriptions |
| frames of a claimed size | S | H, H | H | H | | frames, bus, services |
| more connections than descriptors | S | H, H | H | | | descriptors, bus; name servers too |
| the uuid of another | | S | | | | impostors; name servers too |
| asks and does not read | | | | | | asking: name servers |
| control characters | S | | | | | shown_text: commands and logs |
| planted files, bombs and gaps | | | | | S | journal_files, journal_bombs, journal_gaps |

A recorder and a gateway are subscribers by the same engine as sockets are; a recorder has no publisher.
"""

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
