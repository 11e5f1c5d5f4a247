"""How much of its rate a publisher sends: `PYTHONPATH=tests python -m multicast.rates [RATE…]`.

Prints a row of the table of docs/multicast-deploying.md for each rate: the bytes of all IP packets that a
publisher with more to say than it may send has sent in four seconds, as a share of the rate. There is nobody
to ask for repairs. *Free* is with real-time priority, as on a processor that has nothing else to do.
"""

import json
import os
import subprocess
import sys
import time

import oz
from support.network import GROUP, Network, missing
from support.scripts import ENVIRONMENT

RATES = (5_000, 11_992, 12_000, 14_000, 20_000, 50_000, 100_000, 200_000)
SIZES = (300, 1_300)
SECONDS = 4.0
BEGINS = 1.0
"""Seconds after which it has filled what libzmq and libpgm hold, so that it sends as fast as it may."""
FREE = ("chrt", "-f", "10")

COUNTER = """
    table inet sent { counter bytes_out { }; chain out { type filter hook output priority 0; }; }
    flush chain inet sent out
    add rule inet sent out ip protocol udp counter name bytes_out
"""


def flood(endpoint, rate_kbps, size):
    """Publish until it is killed."""
    payload = bytes(size)
    with oz.Publisher(endpoint, multicast=oz.Multicast(rate_kbps=rate_kbps), on_full="block") as publisher:
        while True:
            publisher.publish("md.x", payload)


def sent_by(host):
    """Give the bytes of IP packets that a host has sent, and when that was read."""
    began = time.monotonic()
    command = host.command("nft", "-j", "list", "counters", "table", "inet", "sent")
    said = json.loads(subprocess.check_output(command, timeout=60))["nftables"]
    (count,) = (one["counter"]["bytes"] for one in said if "counter" in one)
    return count, (began + time.monotonic()) / 2


def share(host, rate_kbps, size, priority=()):
    """Give the share of its rate that a publisher sends."""
    subprocess.run(host.command("nft", "-f", "-"), input=COUNTER, text=True, check=True, timeout=60)
    arguments = (f"epgm://{host.address};{GROUP}:5555", rate_kbps, size)
    command = host.command(*priority, sys.executable, "-m", "multicast.rates", "flood", *arguments)
    process = subprocess.Popen(command, env=ENVIRONMENT)
    try:
        time.sleep(BEGINS)
        while not (before := sent_by(host))[0]:
            assert process.poll() is None, "it ended"
        time.sleep(BEGINS)
        before = sent_by(host)
        time.sleep(SECONDS)
        after = sent_by(host)
    finally:
        process.kill()
        process.wait(60)
    return (after[0] - before[0]) / (after[1] - before[1]) / (rate_kbps * 125)


def main(rates):
    print("| `rate_kbps` | free | busy | load |\n| ---: | ---: | ---: | ---: |")
    with Network(1) as network:
        for rate in rates:
            cells = [
                ", ".join(f"{share(network.hosts[0], rate, size, priority):.2f}" for size in SIZES)
                for priority in (FREE, ())
            ]
            print("|", " | ".join([f"{rate:,}", *cells, f"{os.getloadavg()[0]:.0f}"]), "|", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["flood"]:
        flood(sys.argv[2], *map(int, sys.argv[3:]))
    elif why := missing():
        sys.exit(why)
    else:
        main([int(rate) for rate in sys.argv[1:]] or RATES)
