"""Publishers and subscribers in processes on the hosts of a network of namespaces."""

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.network import GROUP
from support.scripts import ENVIRONMENT
from support.waiting import Thread

HERE = Path(__file__).parent
LONGEST = 180


class Role:
    """A program on a host: `publishing.py` or `subscribing.py`."""

    def __init__(self, script, host, settings):
        settings = {"endpoint": f"epgm://{host.address};{GROUP}:{settings.pop('port', 5555)}", **settings}
        self.host = host
        self._process = subprocess.Popen(
            host.command(sys.executable, HERE / script, json.dumps(settings)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        ready = self._process.stdout.readline()
        assert ready == "ready\n", f"{script} did not start: {ready!r}"

    def go(self):
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self, within=LONGEST):
        """Wait for a line of JSON from the program, and return its value."""
        line = Thread(self._process.stdout.readline).outcome(within)
        assert line, f"it ended with {self._process.wait(LONGEST)}"
        return json.loads(line)

    def write(self, value):
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def close(self):
        """Ask the program to close, and wait for its end."""
        self.go()
        self._process.communicate(timeout=LONGEST)
        assert self._process.returncode == 0, f"it ended with {self._process.returncode}"

    def kill(self):
        self._process.kill()
        self._process.communicate(timeout=LONGEST)


class Scene:
    """Programs on hosts. Programs that still run at the end are killed."""

    def __init__(self, network, stack):
        self.hosts = network.hosts
        self._stack = stack

    def publisher(self, host, **settings):
        return self._play("publishing.py", host, settings)

    def subscriber(self, host, **settings):
        return self._play("subscribing.py", host, settings)

    def run(self, host, within=LONGEST, **settings):
        """Run a publisher, and return the number of messages that it sent. It stays open."""
        publisher = self.publisher(host, **settings)
        publisher.go()
        return publisher.result(within)

    @staticmethod
    def outcome(subscriber, sent):
        """Return the counts of a subscriber, once it has accounted for each message."""
        subscriber.write(sent)
        return subscriber.result()

    def _play(self, script, host, settings):
        role = Role(script, host, settings)
        self._stack.callback(role.kill)
        return role


@contextmanager
def scene(network):
    with ExitStack() as stack:
        yield Scene(network, stack)


def check(sent, got, *, joins_late=False, may_be_uncounted=False, killed=None):
    """Check that each message was delivered or reported lost, and that no message was wrong or double.

    Args:
        sent: results of the publishers.
        got: result of the subscriber.
        joins_late: whether messages were sent before it listened.
        may_be_uncounted: whether a gap without a count is enough for missing messages.
        killed: name of a publisher that did not end, so that its last message is unknown.
    """
    by_name = {item["name"]: item for item in sent}
    rows = {item["name"]: item for item in got["publishers"]}
    assert rows.keys() == by_name.keys() | {killed} - {None}, (rows, by_name)
    assert all(row["wrong"] == row["double"] == 0 for row in rows.values()), rows
    gone = rows.pop(killed, {"delivered": 0, "lost": 0})
    for name, row in rows.items():
        assert joins_late or row["first"] == 0, row
        missing = by_name[name]["sent"] - row["first"] - row["delivered"] - row["lost"]
        is_told = missing > 0 and may_be_uncounted and got["unknown"] > 0
        assert missing == 0 or is_told, (row, by_name[name], got["unknown"])
    received = got["received"] + got["lost"] - gone["delivered"] - gone["lost"]
    missing = sum(item["sent"] - rows[item["name"]]["first"] for item in sent) - received
    assert missing == 0 or (missing > 0 and may_be_uncounted and got["unknown"] > 0)
