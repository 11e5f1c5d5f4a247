"""Hosts for a test: network namespaces on a bridge of their own, with a link that can lose packets.

Nothing here touches the network of the machine: the bridge lives in a namespace too. Everything is named
after the process that built it, and removed at the end; what a killed process left, by the next one.
"""

import atexit
import itertools
import json
import os
import re
import shutil
import subprocess

_numbers = itertools.count()

GROUP = "239.192.7.1"

# The type of a PGM packet is its fifth byte, behind the eight of the UDP header: 4 is data, 5 a repair.
# Source: RFC 3208, section 8. What is to be lost is marked first, so that it can be counted by kind.
RULES = """
    table inet oz {{
        counter lost_data {{ }}
        counter lost_repairs {{ }}
        counter lost {{ }}
        counter repairs {{ }}
        chain way_in {{ type filter hook input priority 0; }}
    }}
    flush chain inet oz way_in
    {drops}
    add rule inet oz way_in udp length > 20 @th,96,8 5 counter name repairs
"""
DROPS = """
    add rule inet oz way_in meta l4proto udp {chance}meta mark set 1
    add rule inet oz way_in meta mark 1 @th,96,8 4 counter name lost_data
    add rule inet oz way_in meta mark 1 @th,96,8 5 counter name lost_repairs
    add rule inet oz way_in meta mark 1 counter name lost drop
"""


def missing():
    """Say what keeps this machine from building such a network; None when nothing does."""
    for tool in ("ip", "nft"):
        if shutil.which(tool) is None:
            return f"no network namespaces: the command {tool} is not installed"
    if os.geteuid() != 0:
        return "no network namespaces: building them needs root"
    name = f"oz{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=60)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()}"
    veth = subprocess.run(
        ["ip", "-n", name, "link", "add", "name", "try0", "type", "veth", "peer", "name", "try1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    run("ip", "netns", "delete", name)
    return None if not veth.returncode else f"no network namespaces: {veth.stderr.strip()}"


def run(*command, text=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, input=text)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def _remove_what_was_left():
    for name in re.findall(r"^oz\d+(?:n|try)\S*", run("ip", "netns", "list"), re.MULTILINE):
        if not os.path.exists(f"/proc/{re.match('oz([0-9]+)', name)[1]}"):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=60)


class Host:
    """One host: its namespace, its address, and what its link loses on the way in."""

    def __init__(self, namespace, address):
        self.namespace = namespace
        self.address = address

    def command(self, *arguments):
        """Give the command line that runs a program there."""
        return ["ip", "netns", "exec", self.namespace, *map(str, arguments)]

    def lose(self, percent):
        """Lose so many of the UDP packets that arrive, at random; 100 is an outage, 0 ends it."""
        chance = f"numgen random mod 1000 < {round(10 * percent)} " if percent < 100 else ""
        drops = "" if not percent else DROPS.format(chance=chance)
        run(*self.command("nft", "-f", "-"), text=RULES.format(drops=drops))

    def reset(self):
        """Lose nothing, and count anew."""
        self.lose(0)
        run(*self.command("nft", "reset", "counters"))

    def packets(self):
        """Count packets: data that was lost on purpose, and repairs that came."""
        counters = json.loads(run(*self.command("nft", "-j", "list", "counters")))["nftables"]
        return {one["counter"]["name"]: one["counter"]["packets"] for one in counters if "counter" in one}


class Network:
    """Hosts on a bridge; use it in `with`."""

    def __init__(self, hosts):
        """Build it."""
        prefix = f"oz{os.getpid()}n{next(_numbers)}"
        self._namespaces = []
        self.hosts = []
        atexit.register(self.remove)
        _remove_what_was_left()
        try:
            bridge = self._add(f"{prefix}br")
            run("ip", "-n", bridge, "link", "add", "name", "bridge0", "type", "bridge", "mcast_snooping", "0")
            run("ip", "-n", bridge, "link", "set", "bridge0", "up")
            for number in range(1, hosts + 1):
                self._add_host(f"{prefix}h{number}", bridge, number)
        except BaseException:
            self.remove()
            raise

    def _add(self, name):
        run("ip", "netns", "add", name)
        self._namespaces.append(name)
        return name

    def _add_host(self, name, bridge, number):
        self._add(name)
        address = f"10.77.0.{number}"
        ip = ("ip", "-n", name)
        run(*ip, "link", "add", "name", "lan", "type", "veth", "peer", "name", f"p{number}", "netns", bridge)
        run("ip", "-n", bridge, "link", "set", f"p{number}", "master", "bridge0", "up")
        run(*ip, "address", "add", f"{address}/24", "dev", "lan")
        run(*ip, "link", "set", "lan", "up")
        run(*ip, "link", "set", "lo", "up")
        run(*ip, "route", "add", "224.0.0.0/4", "dev", "lan")
        host = Host(name, address)
        host.lose(0)
        self.hosts.append(host)

    def fresh(self, subscribers):
        """Give the first host and so many others, all of which lose nothing."""
        hosts = self.hosts[: subscribers + 1]
        for host in hosts:
            host.reset()
        return hosts

    def remove(self):
        """Take it down; a second call does nothing."""
        atexit.unregister(self.remove)
        while self._namespaces:
            name = self._namespaces.pop()
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()
