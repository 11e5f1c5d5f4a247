"""Hosts for a test: network namespaces on a bridge, with links that lose, delay or drop all packets.

The bridge is in a namespace too, so that the network of the machine does not change. The names of namespaces contain
the id of the process that created them. It removes them at its end. The next process removes namespaces of a killed
process.
"""

import atexit
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

_numbers = itertools.count()

GROUP = "239.192.7.1"

# The type of a PGM packet is its fifth byte, behind the eight of the UDP header: 4 is data, 5 a repair.
# Source: RFC 3208, section 8. Packets are marked before they are dropped, so that each kind has a counter.
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
    add rule inet oz way_in iifname "lan" meta l4proto {protocol} {chance}meta mark set 1
    add rule inet oz way_in meta mark 1 @th,96,8 4 counter name lost_data
    add rule inet oz way_in meta mark 1 @th,96,8 5 counter name lost_repairs
    add rule inet oz way_in meta mark 1 counter name lost drop
"""


def missing():
    """Return the reason why this machine cannot create a network of namespaces, or None if it can."""
    for tool in ("ip", "nft"):
        if shutil.which(tool) is None:
            return f"no network namespaces: the command {tool} is not installed"
    if not os.path.exists("/dev/net/tun"):
        return "no slow links: /dev/net/tun is not there"
    if os.geteuid() != 0:
        return "no network namespaces: building them needs root"
    name = f"oz{os.getpid()}try"
    why = _refused("ip", "netns", "add", name)
    if why is None:
        host = Host(name, None)
        rules = RULES.format(drops=host.drops(1, "udp"))
        link = ("ip", "-n", name, "link", "add", "name", "try0")
        why = _refused(*link, "type", "veth", "peer", "name", "try1")
        why = why or _refused(*host.command("nft", "-f", "-"), text=rules)
        run("ip", "netns", "delete", name)
    return None if why is None else f"no network namespaces: {why}"


def _refused(*command, text=None):
    """Return the error of a command, or None if it succeeded."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, input=text)
    return next(iter(done.stderr.splitlines()), f"{command[0]} failed") if done.returncode else None


def run(*command, text=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, input=text)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def _remove_what_was_left():
    for name in re.findall(r"^oz\d+(?:n|try)\S*", run("ip", "netns", "list"), re.MULTILINE):
        if not os.path.exists(f"/proc/{re.match('oz([0-9]+)', name)[1]}"):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=60)


class Host:
    """One host: its namespace, its address, and the losses of its link on the way in."""

    def __init__(self, namespace, address):
        self.namespace = namespace
        self.address = address

    def command(self, *arguments):
        """Return the command line that runs a program on this host."""
        return ["ip", "netns", "exec", self.namespace, *map(str, arguments)]

    def lose(self, percent, protocol="udp"):
        """Drop a percentage of the incoming packets at random; 100 is an outage, 0 ends it.

        Args:
            percent: of the incoming packets, rounded to a tenth.
            protocol: `"udp"` or `"tcp"`.
        """
        run(*self.command("nft", "-f", "-"), text=RULES.format(drops=self.drops(percent, protocol)))

    @staticmethod
    def drops(percent, protocol):
        """Return the nftables rules that drop a percentage of packets."""
        chance = f"numgen random mod 1000 < {round(10 * percent)} " if percent < 100 else ""
        return DROPS.format(chance=chance, protocol=protocol) if percent else ""

    def reset(self):
        """Stop losses, and reset the counters."""
        self.lose(0)
        run(*self.command("nft", "reset", "counters"))

    def packets(self):
        """Count packets: data that was lost on purpose, and repairs that came."""
        counters = json.loads(run(*self.command("nft", "-j", "list", "counters")))["nftables"]
        return {
            counter["counter"]["name"]: counter["counter"]["packets"]
            for counter in counters
            if "counter" in counter
        }


class Network:
    """Hosts on a bridge; use it in `with`."""

    def __init__(self, hosts, delay=0.0):
        """Create the namespaces.

        Args:
            hosts: number of hosts.
            delay: seconds from one host to another.
        """
        prefix = f"oz{os.getpid()}n{next(_numbers)}"
        self._namespaces = []
        self._links = None
        self.hosts = []
        atexit.register(self.remove)
        _remove_what_was_left()
        try:
            self._bridge = self._add(f"{prefix}br")
            link = ("ip", "-n", self._bridge, "link")
            run(*link, "add", "name", "bridge0", "type", "bridge", "mcast_snooping", "0")
            run(*link, "set", "bridge0", "up")
            if delay:
                self._begin_links(delay, hosts)
            for number in range(1, hosts + 1):
                self._add_host(f"{prefix}h{number}", number)
        except BaseException:
            self.remove()
            raise

    def _add(self, name):
        run("ip", "netns", "add", name)
        self._namespaces.append(name)
        return name

    def _begin_links(self, delay, count):
        # A frame passes two links.
        script = Path(__file__).with_name("slow_links.py")
        command = Host(self._bridge, None).command(sys.executable, script, delay / 2, count)
        self._links = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._links.stdout.readline() == "ready\n", "links cannot be made"

    def _add_host(self, name, number):
        self._add(name)
        host = Host(name, f"10.77.0.{number}")
        ip = ("ip", "-n", name)
        if self._links is not None:
            run("ip", "-n", self._bridge, "link", "set", f"h{number}", "netns", name, "name", "lan")
        else:
            port = ("name", f"p{number}", "netns", self._bridge)
            run(*ip, "link", "add", "name", "lan", "type", "veth", "peer", *port)
        run("ip", "-n", self._bridge, "link", "set", f"p{number}", "master", "bridge0", "up")
        run(*ip, "address", "add", f"{host.address}/24", "dev", "lan")
        run(*ip, "link", "set", "lan", "up")
        run(*ip, "link", "set", "lo", "up")
        run(*ip, "route", "add", "224.0.0.0/4", "dev", "lan")
        host.lose(0)
        self.hosts.append(host)

    def narrow(self, host, mtu):
        """Set the maximum size of IP packets on the link of a host."""
        number = self.hosts.index(host) + 1
        run("ip", "-n", self._bridge, "link", "set", f"p{number}", "mtu", str(mtu))
        run("ip", "-n", host.namespace, "link", "set", "lan", "mtu", str(mtu))

    def fresh(self, subscribers):
        """Return the first host and `count` other hosts, without losses."""
        hosts = self.hosts[: subscribers + 1]
        for host in hosts:
            host.reset()
        return hosts

    def remove(self):
        """Remove the namespaces. A second call has no effect."""
        atexit.unregister(self.remove)
        if self._links is not None:
            self._links.kill()
            self._links.communicate()
            self._links = None
        while self._namespaces:
            name = self._namespaces.pop()
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()
