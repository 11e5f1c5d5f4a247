"""No argument ends the process, although libzmq answers a bad PGM option with abort().

Processes of their own try hundreds of cases. If a process dies, the error names the case.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from multicast import needs
from support.ports import lasting_udp_port
from support.scripts import ENVIRONMENT

pytestmark = [needs.pgm, pytest.mark.timeout(300)]

TRYING = Path(__file__).parent / "trying.py"
KINDS = ("Publisher", "Subscriber")
SEED = 20_261_121

ENDPOINTS = [
    "epgm://127.0.0.1;239.192.7.9:{port}", "epgm://lo;239.192.7.9:{port}", "epgm://eth0;239.192.7.9:{port}",
    "epgm://10.99.99.99;239.192.7.9:{port}", "epgm://127.0.0.2;239.192.7.9:{port}",
    "epgm://nope0;239.192.7.9:{port}", "epgm://0.0.0.0;239.192.7.9:{port}",
    "epgm://255.255.255.255;239.192.7.9:{port}", "epgm://239.192.7.9;239.192.7.9:{port}",
    "epgm://127.0.0.1;10.0.0.1:{port}", "epgm://127.0.0.1;224.0.0.1:{port}",
    "epgm://127.0.0.1;239.255.255.255:{port}", "epgm://127.0.0.1;255.255.255.255:{port}",
    "epgm://127.0.0.1;239.192.7.300:{port}", "epgm://127.0.0.1;239.192.7.9;239.192.7.8:{port}",
    "epgm://127.0.0.1;239.192.7.9:0", "epgm://127.0.0.1;239.192.7.9:1", "epgm://127.0.0.1;239.192.7.9:65535",
    "epgm://127.0.0.1;239.192.7.9:65536", "epgm://127.0.0.1;239.192.7.9:-1",
    "epgm://127.0.0.1;239.192.7.9:x", "epgm://127.0.0.1;239.192.7.9:", "epgm://127.0.0.1;239.192.7.9",
    "epgm://127.0.0.1:{port}", "epgm://;239.192.7.9:{port}", "epgm://239.192.7.9:{port}",
    "epgm://[::1];[ff02::1]:{port}", "epgm://127.0.0.0/8;239.192.7.9:{port}",
    "epgm://" + "x" * 300 + ";239.192.7.9:{port}", "epgm://lo\0;239.192.7.9:{port}",
    "epgm://127.0.0.1;239.192.7.9:{port}\0", "epgm://127.0.0.1; 239.192.7.9:{port}",
    "epgm://*;239.192.7.9:{port}", "epgm://", "pgm://127.0.0.1;239.192.7.9:{port}",
    "pgm://127.0.0.1;239.192.7.9:0", "norm://127.0.0.1;239.192.7.9:{port}", "tcp://127.0.0.1:{port}",
    "inproc://x", "udp://127.0.0.1:{port}"
]  # fmt: skip
NUMBERS = {
    "rate_kbps": [-1, 0, 1, 11, 12, 73, 74, 10_000, 1_000_000, 10_000_000, 17_179_870, 2**31, 2**70],
    "recovery": [-1.0, 0, 0.001, 0.0001, 0.1, 1, 60.0, 600.0, 1e9, float("inf"), float("nan"), "1"],
    "hops": [-1, 0, 1, 2, 255, 256, 2**31 - 1, 2**31, True],
    "mtu": [-1, 0, 1, 24, 75, 76, 255, 256, 1500, 1501, 9216, 9217, 16_384, 65_535, 65_536, 2**31],
    "stale_after": [-1.0, 0, 0.4, 0.5, 3600, 3601, float("inf"), float("nan"), None],
}
SOCKET_OPTIONS = {
    "plain": [True],
    "high_water_mark": [0, 1, 2**31 - 1, 2**31, -1],
    "codec": ["msgpack"],
}
HOLDERS = ["Publisher", "Subscriber", "reuse", "loopback", "any"]


def given(kind, endpoint=ENDPOINTS[0], **more):
    port = lasting_udp_port()
    return {"kind": kind, "endpoint": endpoint.format(port=port), "port": port, **more}


def endpoint_cases():
    return [given(kind, endpoint) for kind in KINDS for endpoint in ENDPOINTS]


def number_cases():
    return [
        given(kind, multicast={name: value})
        for kind in KINDS
        for name, values in NUMBERS.items()
        for value in values
    ]


def held_cases():
    cases = [given(kind, holder=holder) for kind in KINDS for holder in HOLDERS]
    return cases + [given(kind, files=files) for kind in KINDS for files in (12, 16, 20, 24, 30, 40)]


def mixed_cases(count=150):
    """Combinations of everything, the same at each run."""
    chance = random.Random(SEED)
    cases = []
    for _ in range(count):
        multicast = {name: chance.choice(values) for name, values in NUMBERS.items() if chance.random() < 0.3}
        options = {
            name: chance.choice(values) for name, values in SOCKET_OPTIONS.items() if chance.random() < 0.2
        }
        endpoint = chance.choice(ENDPOINTS) if chance.random() < 0.3 else ENDPOINTS[0]
        holder = chance.choice([*HOLDERS, None, None, None, None])
        more = {"options": options, "holder": holder}
        cases.append(given(chance.choice(KINDS), endpoint, multicast=multicast, **more))
    return cases


def outcomes(cases, *arguments):
    """Try cases in one process, and return a line for each."""
    text = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(
        [sys.executable, TRYING, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=280,
        env=ENVIRONMENT,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (
        f"{cases[len(lines)]} ended the process: {done.returncode}\n{done.stderr[-500:]}"
    )
    assert len(lines) == len(cases)
    return lines


@pytest.mark.parametrize("cases", [endpoint_cases, number_cases, held_cases, mixed_cases])
def test_no_case_ends_the_process(cases):
    tried = cases()
    lines = outcomes(tried)
    # Some cases must be refused, and some must work.
    used = lines.count("used")
    assert 0 < used < len(lines)
    for case, line in zip(tried, lines, strict=True):
        assert line == "used" or len(line) > 30, (case, line)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_without_privilege_nothing_ends_the_process():
    cases = [
        given(kind, endpoint)
        for kind in KINDS
        for endpoint in (ENDPOINTS[0], "pgm://127.0.0.1;239.192.7.9:7")
    ]
    lines = outcomes([*cases, given("Publisher", "epgm://127.0.0.1;239.192.7.9:7")], "nobody")
    assert [line.partition(" ")[0] for line in lines] == [
        *("used", "EndpointError") * 2,
        "EndpointError",
    ]
    assert "raw socket" in lines[1]
