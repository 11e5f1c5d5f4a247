"""A bus of which a third is killed and started again, all the time."""

import json
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import oz
from oz.services.nameserver import NameServer
from support.scripts import ENVIRONMENT
from support.sizes import SOAK
from support.waiting import Thread

NODES, DOOMED = 20, 7
SECONDS = max(15.0, SOAK)
"""OZ_SOAK=60 is the whole of it."""

LONG = 120.0
"""Seconds. It only ends what hangs."""

SCRIPT = Path(__file__).with_name("chaos_node.py")


class Bus(ExitStack):
    """The processes of the nodes, and when which was killed."""

    def __init__(self, nameserver, directory):
        super().__init__()
        self.nameserver = nameserver
        self.directory = directory
        self.kills = []

    def start(self, name, kind):
        with (self.directory / f"{name}.err").open("a") as errors:
            process = subprocess.Popen(
                [
                    *(sys.executable, SCRIPT, name, self.nameserver, self.report(name), kind),
                    *(str(NODES), str(NODES - DOOMED)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**ENVIRONMENT, "OZ_DIRECTORY": str(self.directory / "s")},
            )
        self.callback(bury, process)
        return process

    def report(self, name):
        return self.directory / f"{name}.json"

    def kill(self, process):
        self.kills.append(time.time())
        bury(process)


def bury(process):
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()


def words_of(bus, process):
    name = process.args[2]
    return f"{name} ended with {process.returncode}: {(bus.directory / f'{name}.err').read_text()[-4000:]}"


def await_word(process, word):
    line = Thread(process.stdout.readline).outcome(LONG)
    assert line == f"{word}\n", f"{process.args}: {line!r}, status {process.poll()}"


@pytest.fixture
def bus(short_directory):
    with NameServer("tcp://127.0.0.1:*") as server:
        serving = Thread(server.run)
        with Bus(server.endpoint, short_directory) as made:
            yield made
        server.stop()
        serving.outcome()


@pytest.mark.heavy
@pytest.mark.timeout(4 * LONG + 3 * SECONDS)
def test_all_is_accounted_for_while_a_third_of_the_nodes_is_killed_again_and_again(bus):
    reports = run(bus)
    stable = {one["name"]: one for one in reports}
    check_talk(stable)
    check_jobs(stable)
    check_requests(stable, len(bus.kills))
    check_leaks(reports)
    told(reports, bus.kills)


def run(bus):
    """Run the bus for its time; give what the stable nodes wrote down."""
    stable = {f"s{at}": bus.start(f"s{at}", "stable") for at in range(NODES - DOOMED)}
    doomed = {f"d{at}": bus.start(f"d{at}", "doomed") for at in range(DOOMED)}
    for process in (*stable.values(), *doomed.values()):
        await_word(process, "ready")
    for process in stable.values():
        await_word(process, "met")
    chance, ends = random.Random(8), time.monotonic() + SECONDS
    while time.monotonic() < ends:
        unlucky = chance.sample(sorted(doomed), chance.randint(1, DOOMED))
        for name in unlucky:
            bus.kill(doomed[name])
        time.sleep(chance.uniform(0.1, 1.0))
        doomed |= {name: bus.start(name, "doomed") for name in unlucky}
        for name in unlucky:
            await_word(doomed[name], "ready")
    with oz.Node("control", nameserver=bus.nameserver, directory=bus.directory / "s") as control:
        control.wait_for_peers([*stable, *doomed], timeout=LONG)
        control.wait_ready(timeout=LONG)
        control.publish("ctl.stop")
        control.flush()
        for process in stable.values():
            await_word(process, "written")
        for process in stable.values():
            process.stdin.close()
        for process in (*stable.values(), *doomed.values()):
            assert process.wait(LONG) == 0, words_of(bus, process)
    return [json.loads(bus.report(name).read_text()) for name in stable]


def check_talk(stable):
    """What stable nodes said to each other came, or is reported lost; of all others too, up to their end."""
    for one in stable.values():
        assert one["out_of_order"] == 0
        assert one["missing"] <= one["lost"], one["name"]
        for other in stable.values():
            key = f"{other['name']}/{other['life']}"
            assert other["sent"] - one["next"][key] <= one["lost"], (one["name"], other["name"])


def check_jobs(stable):
    """A group of stable nodes handled each job once; one with doomed nodes in it none twice."""
    sent = {(one["name"], number) for one in stable.values() for number in range(one["sent"])}
    handled = [tuple(job) for one in stable.values() for job in one["jobs"]]
    assert len(handled) == len(set(handled)), "a job was handled twice"
    assert sent - set(handled) == set(), "a job was not handled"
    shared = [tuple(job) for one in stable.values() for job in one["shared_jobs"]]
    assert len(shared) == len(set(shared)), "a shared job was handled twice"


def check_requests(stable, kills):
    """Requests were answered rightly; only those that a killed node had got were not."""
    replies = sum(one["asked"][0] for one in stable.values())
    unanswered = sum(one["asked"][1] + one["asked"][2] for one in stable.values())
    assert sum(one["asked"][3] for one in stable.values()) == 0
    assert replies > 10 * unanswered
    assert unanswered <= kills * len(stable)


def check_leaks(reports):
    """No process has more threads than before, nor many more descriptors or much more memory."""
    for one in reports:
        before, after = one["before"], one["after"]
        assert after["threads"] == before["threads"] or len(after["threads"]) <= len(before["threads"]) + 8
        # Each peer is a socket or four; those who came and went leave none behind.
        assert after["fds"] <= before["fds"] + 2 * DOOMED, one["name"]
        assert after["resident"] <= before["resident"] + 64 * 2**20, one["name"]
        assert {other["name"] for other in reports} <= {one["name"], *one["peers"]}


def told(reports, kills):
    sent = sum(one["sent"] for one in reports)
    asked = [sum(column) for column in zip(*(one["asked"] for one in reports), strict=True)]
    print(f"\n{len(kills)} kills; {sent:,} messages and as many jobs of stable nodes; requests answered,")
    print(f"refused, timed out, wrong: {asked}; lost: {sum(one['lost'] for one in reports)}")
    worst = max(reports, key=lambda one: one["after"]["resident"] - one["before"]["resident"])
    print(f"descriptors and memory of {worst['name']}: {worst['before']} then {worst['after']}")
