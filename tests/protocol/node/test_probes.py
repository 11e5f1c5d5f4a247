"""Probes of the sockets of this host: in which order they are tried."""

from __future__ import annotations

from types import SimpleNamespace

from oz.protocol.node.probes import Probes


class Directory:
    def __init__(self, names):
        self.names = names

    def others(self):
        return set(self.names)

    def clear(self, endpoint):
        return False


def test_sockets_are_tried_and_left_in_one_order_whatever_the_hashes():
    names, left = [f"ipc://{number:02}" for number in range(20)], []
    directory = Directory(reversed(names))
    probes = Probes(directory, {}, SimpleNamespace(sockets=0), lambda endpoint: left.append(endpoint) or [])
    assert [one.endpoint for one in probes.scan([], now=0.0)] == names
    directory.names = []
    probes.scan([], now=100.0)
    assert left == names
