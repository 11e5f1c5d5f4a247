"""Keys and permissions of runs of nodes: all of those who are honest, and few of a member's."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from random import Random

import zmq
from zmq.utils import z85

from oz.transport.certificates import KeyPair, write_certificates
from simulation.nodes import ANYBODY, NAMES
from support.keyring import Keyring

MEMBER = "member"
OPEN, CLOSED, ASK = "open.x", "open.secret", f"open.{ANYBODY}"
"""What all may publish and read; what the member may not, though it may have all beside it; and where all may
ask, and the member may read but not answer."""

_HONEST = f"""
    publish = {{ allow = [">"] }}
    subscribe = {{ allow = [">"] }}
    request = {{ allow = [">"] }}
    reply = {{ allow_responses = true }}
    group = {{ allow = ["svc.{ANYBODY} workers", "{ASK} workers"] }}"""
_FEW = f"""
    publish = {{ allow = ["open.>"], deny = ["{CLOSED}"] }}
    subscribe = {{ allow = ["open.>"], deny = ["{CLOSED}"] }}
    request = {{ allow = ["{ASK}"] }}"""
RULES = dict.fromkeys(NAMES, _HONEST) | {MEMBER: _FEW}


class FixedKeyring(Keyring):
    """Keys that follow from the names of those who have them, so that a seed replays exactly."""

    def make(self, name):
        secret = z85.encode(Random(name).randbytes(32))
        self._pairs[name] = pair = KeyPair(zmq.curve_public(secret).decode(), secret.decode())
        write_certificates(self._directory, name, pair)
        return pair


@cache
def keyring():
    """Write the keys and rules of all runs, of this process and those that it forks."""
    directory = tempfile.TemporaryDirectory(prefix="oz-simulation-")
    ring = FixedKeyring(Path(directory.name), *RULES)
    ring.permit(**RULES)
    ring.directory = directory
    return ring


def security_of(name):
    """Make the security of somebody."""
    return keyring().security(name, permissions=True)
