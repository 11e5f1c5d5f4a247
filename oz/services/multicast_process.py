"""The process that has the multicast socket of a gateway: when it dies, nothing else does.

`python -m oz.services.multicast_process JSON`: it is told what to do in one argument, speaks over the link
that is named there, and ends when its standard input does, which is when the gateway has ended.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import deque
from contextlib import closing
from typing import Any

import zmq

from oz.errors import OzError, Timeout, WouldBlock
from oz.message import Extras, Gap
from oz.protocol.multicast.options import Multicast
from oz.protocol.multicast.receiver import MulticastReceiver
from oz.protocol.node.advisories import Advisory
from oz.services.link import (
    ADVISORY,
    BEAT,
    BEAT_SECONDS,
    CLOSE,
    GAP,
    MANY,
    MESSAGES,
    REACHED,
    READY,
    Relayed,
    options_of,
    pack,
    relayed,
    unpack,
    unpack_message,
)
from oz.sync.publisher_engine import ThreadedPublisher
from oz.sync.subscriber import Subscriber
from oz.system import POLLHUP, POLLIN, make_poll
from oz.transport.multicast.group import silence_libpgm
from oz.transport.publisher.options import PublisherOptions

FAILED = 3
"""The exit code of a process that says in its last line why it cannot do its work."""

_PATIENCE = 0.5
_CLOSE_TIMEOUT = 2.0


class GatewayLink:
    """This end of the link to the gateway."""

    def __init__(self, address: str) -> None:
        """Connect."""
        silence_libpgm()
        self._context: zmq.Context[Any] = zmq.Context()
        self.socket = self._context.socket(zmq.PAIR)
        self.socket.set(zmq.SNDHWM, 100)
        self.socket.set(zmq.RCVHWM, 100)
        self.socket.set(zmq.LINGER, round(_CLOSE_TIMEOUT * 1000))
        self.socket.connect(address)
        self._stdin = make_poll()
        self._stdin.register(0, POLLIN | POLLHUP)
        self._beats_at = 0.0

    def is_orphaned(self) -> bool:
        """Tell whether the gateway has ended."""
        return bool(self._stdin.poll(0))

    def send(self, kind: int, *body: Any) -> None:
        """Send a frame, as soon as there is room; the gateway may be busy, or gone."""
        frame = pack(kind, *body)
        while True:
            try:
                self.socket.send(frame, zmq.NOBLOCK)
                return
            except zmq.Again:
                if self.is_orphaned():
                    raise SystemExit(0) from None
                self.socket.poll(100, zmq.POLLOUT)

    def beat(self, counters: Any) -> bool:
        """Show that this process works, when that is due; tell whether it was."""
        now = time.monotonic()
        if now < self._beats_at:
            return False
        self._beats_at = now + BEAT_SECONDS
        self.send(BEAT, counters)
        return True

    def close(self) -> None:
        """Send the rest, and close."""
        self._context.destroy()


def receive(link: GatewayLink, task: dict[str, Any]) -> None:
    """Pass on what is multicast, until the gateway ends."""
    gaps: deque[Gap] = deque()

    def say(advisory: Advisory) -> None:
        link.send(ADVISORY, advisory.kind, advisory.endpoint, advisory.text)

    with Subscriber(
        task["endpoints"],
        dialect="zmq",
        multicast=Multicast(**task["multicast"]),
        on_gap=gaps.append,
        on_advisory=say,
    ) as subscriber:
        subscriber.subscribe("")
        receiver = subscriber._engine.receiver
        assert isinstance(receiver, MulticastReceiver)
        # What a publisher sent that began while no process listened is lost, not missed by coming late.
        receiver.joined_at = task["joined_at"] or receiver.joined_at
        link.send(READY, receiver.joined_at)
        while not link.is_orphaned() and not _is_to_close(link):
            try:
                messages = subscriber.receive_many(MANY, timeout=BEAT_SECONDS)
            except Timeout:
                messages = []
            if messages:
                link.send(MESSAGES, [relayed(message) for message in messages])
            if len(messages) < MANY:
                # Nothing waits: what these say is behind all that was passed on.
                _report(link, gaps)
                if link.beat(_counters(subscriber.stats)):
                    link.send(REACHED, {origin: one.expected for origin, one in receiver.senders.items()})
            else:
                link.beat(_counters(subscriber.stats))


def _report(link: GatewayLink, gaps: deque[Gap]) -> None:
    while gaps:
        gap = gaps.popleft()
        link.send(GAP, gap.origin, gap.sequence, gap.count)


def _is_to_close(link: GatewayLink) -> bool:
    try:
        return unpack(link.socket.recv(zmq.NOBLOCK))[0] == CLOSE
    except zmq.Again:
        return False


def send(link: GatewayLink, task: dict[str, Any]) -> None:
    """Multicast what the gateway says, until it ends."""
    options = PublisherOptions(
        dialect="zmq",
        multicast=Multicast(**task["multicast"]),
        on_full="block",
        full_timeout=_PATIENCE,
    )
    with closing(ThreadedPublisher(options)) as publisher:
        publisher.resume(bytes.fromhex(task["origin"]), task["epoch"], task["next"], task["age"])
        for endpoint in task["endpoints"]:
            publisher.bind(endpoint)
        link.send(READY, 0)
        _Sending(link, publisher, task["next"]).run()


class _Sending:
    """Publishes messages under the numbers that they were given."""

    def __init__(self, link: GatewayLink, publisher: ThreadedPublisher, number: int) -> None:
        self._link = link
        self._publisher = publisher
        self._number = number
        self._refused = 0

    def run(self) -> None:
        """Publish until told to close."""
        link = self._link
        while not link.is_orphaned():
            self._beat()
            if not link.socket.poll(round(BEAT_SECONDS * 1000)):
                continue
            kind, body = unpack(link.socket.recv())
            if kind == CLOSE:
                return
            if kind == GAP:
                self._publisher.report_loss(None)
            else:
                messages, number = body
                for message in messages:
                    self._publish(unpack_message(message))
                self._skip_to(number)

    def _beat(self) -> None:
        self._link.beat({**_counters(self._publisher.stats), "refused": self._refused})

    def _skip_to(self, number: int) -> None:
        if number > self._number:
            self._publisher.report_loss(number - self._number)
            self._number = number

    def _publish(self, message: Relayed) -> None:
        self._skip_to(message.sequence)
        while True:
            try:
                extras = Extras(**options_of(message))
                self._publisher.publish_slowly(
                    message.subject, message.payload, extras if any(extras) else None
                )
                break
            except WouldBlock:
                # RATE is reached; the gateway must know that this is not stuck.
                self._beat()
                if self._link.is_orphaned():
                    raise SystemExit(0) from None
            except (OzError, TypeError, ValueError):
                # It keeps its number, and is found missing.
                self._refused += 1
                self._publisher.report_loss(1)
                break
        self._number += 1


def _counters(stats: Any) -> dict[str, int]:
    return {name: getattr(stats, name) for name in stats.__dataclass_fields__}


def main(argument: str) -> None:
    """Do what the argument says."""
    # Ctrl-C goes to everybody at the terminal; the gateway ends this in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = json.loads(argument)
    link = GatewayLink(task["link"])
    try:
        (receive if task["role"] == "receiver" else send)(link, task)
    except (OzError, ValueError, TypeError, zmq.ZMQError) as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(FAILED) from None
    finally:
        link.close()


if __name__ == "__main__":
    main(sys.argv[1])
