"""A peer that asks a name server who is there, 1,500 times, and reads no answer."""

import os
import sys
import time
from pathlib import Path

import pytest

from oz.security.limits import DEFAULT_LIMITS, MIB
from oz.services.nameserver import NameServer, ask
from oz.wire.discovery import Announce, pack
from support.announcing import announcement
from support.inside import registry_of
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

ASKING = Path(__file__).with_name("asking.py")
NODES, TIMES = 500, 1_500


def resident():
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_name_server_keeps_few_answers_for_who_does_not_read_them():
    with NameServer("tcp://127.0.0.1:*", expiry=3_600) as server:
        registry = registry_of(server)
        for number in range(NODES):
            one = pack(Announce(announcement(number), True))
            registry.receive(b"node %d" % number, one, time.monotonic())
            while registry.page(b"node %d" % number):
                registry.paged(b"node %d" % number)
        running = Thread(server.run)
        before = resident()
        with started(ASKING, server.endpoint, TIMES) as attacker:
            assert attacker.stdout.readline() == "asked\n", attacker.stderr.read()
            until(lambda: server.stats.refused >= TIMES // 2)
            for _ in range(5):
                assert len(ask(server.endpoint, timeout=DEADLINE)) == NODES
            assert resident() - before < 3 * DEFAULT_LIMITS.queued
            assert DEFAULT_LIMITS.queued == 8 * MIB
        server.stop()
    running.outcome()
