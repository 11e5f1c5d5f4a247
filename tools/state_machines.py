"""Draw the state machines of oz.protocol from the code, by driving each through every order of events.

Usage: python tools/state_machines.py [--check]     in a checkout with oz installed

It writes the diagrams between the marks in docs/architecture.md, in Mermaid; `--check` only compares. The
walk, that of walks.py, takes every order of up to `DEPTH` events from a fresh machine, so that what it draws
is what the code does. Where two orders disagree about an arrow, it draws both.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from walks import START, Drawn, Machine, diagram

import oz
from oz.protocol.declared import declare
from oz.protocol.multicast.receiver import HeardSender
from oz.protocol.multicast.watchdog import Watchdog
from oz.protocol.node.connections import CHECK_EVERY, FORGET_AFTER, MISSES, Connections
from oz.protocol.node.discovery_client import DiscoveryClient
from oz.protocol.node.membership import Membership
from oz.protocol.node.presence import local_origin, network_origin
from oz.protocol.node.probes import DRAIN_EVERY
from oz.protocol.node.steps import Forget
from oz.protocol.publisher.lifetimes import GRACE, WITHDRAWAL_DELAY
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.sequences import Source
from oz.wire.batch import Head
from oz.wire.discovery import Announcement, Joined, Lost, Welcome, pack
from oz.wire.keys import Declaration, stream_key

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

# a stream at its publisher --------------------------------------------------------------------------------

_NAME = b"n" * 16
_PATTERNS = (declare(oz.compile("a.*")),)
_DECLARED = Declaration(_NAME, 1, patterns=_PATTERNS).encode()
_GOODBYE = Declaration(_NAME, 2, is_closing=True).encode()


def _begin_stream() -> Machine:
    return {"router": Router(bytes(16), PublisherStats()), "now": 0.0, "sent": []}


def _subscribe(machine: Machine, *keys: bytes) -> None:
    for key in keys:
        if key not in machine["sent"]:
            machine["sent"].append(key)
            machine["router"].learn(b"\x01" + key, machine["now"])


def _unsubscribe(machine: Machine, *keys: bytes) -> None:
    for key in keys:
        if key in machine["sent"]:
            machine["sent"].remove(key)
            machine["router"].learn(b"\x00" + key, machine["now"])


def _pass(machine: Machine, seconds: float) -> None:
    machine["now"] += seconds
    machine["router"].expire(machine["now"])


def _stream_state(machine: Machine) -> str:
    stream = machine["router"].streams.get(stream_key(_NAME))
    if stream is None:
        return START
    if stream.is_closing:
        return "closing"
    if stream.vanished_at is not None:
        return "cut off"
    if stream.listeners and stream.patterns:
        return "served" if stream.chunks else "asked for no more"
    return "listened to" if stream.listeners else "declared"


STREAM = Drawn(
    "stream",
    _begin_stream,
    {
        "declaration": lambda one: _subscribe(one, _DECLARED),
        "key of the stream": lambda one: _subscribe(one, stream_key(_NAME)),
        "declaration taken back": lambda one: _unsubscribe(one, _DECLARED),
        "connection cut": lambda one: _unsubscribe(one, *list(one["sent"])),
        "goodbye": lambda one: _subscribe(one, _GOODBYE),
        "time of grace over": lambda one: _pass(one, GRACE + WITHDRAWAL_DELAY),
    },
    _stream_state,
)


# a publisher at a subscriber, on one key ------------------------------------------------------------------


def _begin_source() -> Machine:
    return {"source": Source(), "epoch": 1, "at": 0, "lost": 0}


def _batch(machine: Machine, *, skipped: int = 0, epoch: int = 0) -> None:
    if epoch:
        machine["epoch"] += epoch
        machine["at"] = 0
    machine["at"] += skipped
    head = Head(0, bytes(16), machine["epoch"], machine["at"], 1)
    machine["at"] += 1
    machine["lost"], _ = machine["source"].advance(head, 0, is_shared=False)


def _source_state(machine: Machine) -> str:
    if machine["source"].epoch is None:
        return START
    if machine["lost"] == 0:
        return "in sequence"
    return "lost, nobody knows how many" if machine["lost"] is None else "lost, counted"


SOURCE = Drawn(
    "source",
    _begin_source,
    {
        "next batch": _batch,
        "batch beyond the next": lambda one: _batch(one, skipped=3),
        "batch of a later epoch": lambda one: _batch(one, epoch=1),
    },
    _source_state,
)


# a peer at a node -----------------------------------------------------------------------------------------

_LOST_AFTER = 4.0


def _announcement(name: bytes) -> Announcement:
    endpoints = (f"tcp://127.0.0.1:{name[0]}",)
    return Announcement(name * 16, name.decode(), "bus", "host", b"host", 1, endpoints, None, "1", 0)


_OWN, _PEER = _announcement(b"o"), _announcement(b"p")


def _begin_peer() -> Machine:
    return {"membership": Membership(_OWN, _LOST_AFTER), "now": 0.0}


def _link(machine: Machine, *, stands: bool, is_cut: bool = False) -> None:
    there = [_PEER] if stands else []
    whole = {_PEER.uuid} if stands else set()
    cut = {_PEER.uuid} if is_cut else set()
    machine["membership"].link(there, whole, cut, machine["now"])


def _tick(machine: Machine) -> None:
    machine["now"] += _LOST_AFTER
    machine["membership"].tick(machine["now"])


def _peer_state(machine: Machine) -> str:
    membership = machine["membership"]
    if _PEER not in membership.known:
        return START
    if membership.is_linked(_PEER.uuid):
        return "up"
    return "up, its link is down" if _PEER in membership.up else "connecting"


PEER = Drawn(
    "peer",
    _begin_peer,
    {
        "name server knows it": lambda one: one["membership"].hear(_PEER, one["now"], by="s"),
        "link stands": lambda one: _link(one, stands=True),
        "link breaks": lambda one: _link(one, stands=False, is_cut=True),
        "presence taken back": lambda one: _link(one, stands=False),
        "goodbye": lambda one: one["membership"].leave(_PEER.uuid, one["now"], by="s"),
        "name server misses it": lambda one: one["membership"].lose(_PEER.uuid, one["now"], by="s"),
        "lost_after is over": _tick,
    },
    _peer_state,
)


# a connection to a peer -----------------------------------------------------------------------------------


class _Heard:
    """What the node's subscriber has heard of the peer."""

    def __init__(self) -> None:
        self.at = 0

    def heard_at(self, _: bytes) -> int:
        return self.at

    def last_heard(self) -> dict[bytes, int]:
        return dict.fromkeys((local_origin(_PEER.uuid), network_origin(_PEER.uuid)), self.at)

    def has_answer(self, _: bytes) -> bool:
        return bool(self.at)


def _begin_connection() -> Machine:
    heard = _Heard()
    return {"connections": Connections(_OWN, heard, None), "heard": heard, "now": 0.0, "known": False}


def _connect(machine: Machine) -> None:
    if not machine["known"]:
        machine["known"] = True
        machine["connections"].connect(_PEER, machine["now"])


def _disconnect(machine: Machine) -> None:
    if machine["known"]:
        machine["known"] = False
        machine["connections"].disconnect(_PEER, machine["now"])


def _speak(machine: Machine) -> None:
    machine["heard"].at += _connection_state(machine) not in (START, "remembered")


def _wait(machine: Machine, seconds: float) -> None:
    connections, ends = machine["connections"], machine["now"] + seconds
    while machine["now"] < ends:
        machine["now"] += DRAIN_EVERY
        if connections.is_check_due(machine["now"]):
            connections.check([_PEER] if machine["known"] else [], machine["now"])
        if any(isinstance(step, Forget) for step in connections.drain(machine["now"])):
            machine["heard"].at = 0


def _connection_state(machine: Machine) -> str:
    connections = machine["connections"]
    if connections.gone_peer(_PEER.uuid):
        return "drained" if _PEER.uuid in connections.draining else "remembered"
    if not machine["known"]:
        return START
    if not machine["heard"].at:
        return "dialled"
    return "silent, and dialled anew" if connections.has_fallen_silent(_PEER) else "heard"


CONNECTION = Drawn(
    "connection",
    _begin_connection,
    {
        "peer is known": _connect,
        "something comes": _speak,
        "five seconds of silence": lambda one: _wait(one, (MISSES + 1) * CHECK_EVERY),
        "peer is gone": _disconnect,
        "a minute of silence": lambda one: _wait(one, FORGET_AFTER + DRAIN_EVERY),
    },
    _connection_state,
)


# a node at a name server ----------------------------------------------------------------------------------


def _begin_client() -> Machine:
    return {"client": DiscoveryClient(_OWN, "tcp://127.0.0.1:1"), "now": 0.0, "server": 1}


def _hear(machine: Machine, *replies: Any) -> None:
    for reply in replies:
        machine["client"].receive(pack(reply), machine["now"])


def _welcome(machine: Machine, *, is_another: bool = False) -> None:
    machine["server"] += is_another
    _hear(machine, Welcome(bytes([machine["server"]]) * 16, "s", 1.0, 3.5))


def _silence(machine: Machine) -> None:
    machine["now"] += 60.0
    machine["client"].tick(machine["now"])


def _client_state(machine: Machine) -> str:
    client = machine["client"]
    if client.next_at == float("inf"):
        return "has left"
    if client.is_registered(machine["now"]):
        return "registered"
    return START if client.server_id is None else "announcing to a server that answers"


CLIENT = Drawn(
    "discovery client",
    _begin_client,
    {
        "welcome": _welcome,
        "welcome of another server": lambda one: _welcome(one, is_another=True),
        "hears itself": lambda one: _hear(one, Joined(_OWN)),
        "hears that it is lost": lambda one: _hear(one, Lost(_OWN.uuid)),
        "a minute of silence": _silence,
        "goodbye": lambda one: one["client"].goodbye(),
    },
    _client_state,
)


# a multicast publisher under watch ------------------------------------------------------------------------


def _begin_watch() -> Machine:
    return {"dog": Watchdog(1.0, 100), "senders": {}, "now": 0.0, "state": START}


def _look(machine: Machine) -> None:
    for finding in machine["dog"].look(machine["senders"], ["e;g:1"], machine["now"], is_idle=True):
        if finding.advisory is not None:
            machine["state"] = finding.advisory.kind


def _hear_sender(machine: Machine, *, has_left: bool = False) -> None:
    sender = machine["senders"].setdefault(b"o", HeardSender())
    machine["now"] += 0.1
    sender.heard_at = round(machine["now"] * 1e9)
    if machine["state"] == START or sender.has_left > has_left:
        machine["state"] = "heard"
    sender.has_left = has_left
    _look(machine)


def _be_silent(machine: Machine, seconds: float) -> None:
    looks = min(20, round(seconds / 0.5))
    for _ in range(looks):
        machine["now"] += seconds / looks
        _look(machine)


WATCH = Drawn(
    "multicast publisher",
    _begin_watch,
    {
        "datagram": _hear_sender,
        "1.5 s without a message": lambda one: _be_silent(one, 1.5),
        "its packets arrive for stale_after": lambda one: _be_silent(one, 4.0),
        "silence goes on for minutes": lambda one: _be_silent(one, 120.0),
        "goodbye": lambda one: _hear_sender(one, has_left=True),
    },
    lambda one: one["state"],
)

ALL = (STREAM, SOURCE, PEER, CONNECTION, CLIENT, WATCH)


def rewrite(page: str) -> str:
    """Put every diagram between its marks."""
    for drawn in ALL:
        begin, end = f"<!-- states: {drawn.name} -->\n", "<!-- end of states -->"
        head, _, rest = page.partition(begin)
        if not rest:
            raise SystemExit(f"{PAGE.name} has no mark {begin.strip()}")
        _, _, tail = rest.partition(end)
        page = f"{head}{begin}{diagram(drawn)}\n{end}{tail}"
    return page


def main(arguments: list[str]) -> Iterator[str]:
    """Write the diagrams, or compare them."""
    parser = argparse.ArgumentParser(description="Draw the state machines of oz.protocol from the code.")
    parser.add_argument("--check", action="store_true", help="only compare with what the page has")
    options = parser.parse_args(arguments)
    page = PAGE.read_text()
    new = rewrite(page)
    if options.check and new != page:
        raise SystemExit(
            f"{PAGE.name} shows other state machines than the code has: run tools/state_machines.py"
        )
    PAGE.write_text(new)
    yield f"{len(ALL)} state machines drawn"


if __name__ == "__main__":
    print(*main(sys.argv[1:]), sep="\n")
