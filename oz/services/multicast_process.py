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
from math import inf
from typing import Any

import zmq

from oz.errors import OzError
from oz.protocol.messages import Gap
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
    extras_of,
    pack,
    relayed,
    unpack,
    unpack_message,
)
from oz.services.sockets import ServiceSubscriber
from oz.services.waiting import wait
from oz.sync.publisher_engine import ThreadedPublisher
from oz.system import POLLHUP, POLLIN, make_poll
from oz.transport.multicast.group import silence_libpgm
from oz.transport.publisher.options import PublisherOptions
from oz.transport.subscriber.subscribing import EVERYTHING

FAILED = 3
"""The exit code of a process that says in its last line why it cannot do its work."""

_REACHED_SECONDS = 0.2
"""Seconds at least between two accounts of the numbers that publishers have reached."""

_CLOSE_TIMEOUT = 2.0
_STDIN = 0


class GatewayLink:
    """This end of the link to the gateway.

    Attributes:
        socket: the PAIR.
        beats_at: when to show that this process works, in monotonic seconds.
    """

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
        self._stdin.register(_STDIN, POLLIN | POLLHUP)
        self._room = self.poller(zmq.POLLOUT)
        self.beats_at = 0.0

    def poller(self, flags: int = zmq.POLLIN) -> zmq.Poller:
        """Make a poller that tells of the link, and of the end of the gateway."""
        poller = zmq.Poller()
        poller.register(self.socket, flags)
        poller.register(_STDIN, zmq.POLLIN)
        return poller

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
                wait(self._room, inf)

    def rest(self, seconds: float) -> None:
        """Do nothing for so long; end when the gateway has."""
        if self._stdin.poll(1000 * seconds):
            raise SystemExit(0)

    def beat(self) -> None:
        """Show that this process works, when that is due."""
        now = time.monotonic()
        if now >= self.beats_at:
            self.beats_at = now + BEAT_SECONDS
            self.send(BEAT)

    def close(self) -> None:
        """Send the rest, and close."""
        self._context.destroy()


def receive(link: GatewayLink, task: dict[str, Any]) -> None:
    """Pass on what is multicast, until the gateway ends."""
    gaps: deque[Gap] = deque()

    def say(advisory: Advisory) -> None:
        link.send(ADVISORY, advisory.kind, advisory.endpoint, advisory.text)

    made = ServiceSubscriber(
        task["endpoints"], multicast=Multicast(**task["multicast"]), on_gap=gaps.append, on_advisory=say
    )
    with closing(made) as subscriber:
        subscriber.subscribe([EVERYTHING])
        receiver = subscriber.engine.receiver
        assert isinstance(receiver, MulticastReceiver)
        # What a publisher sent that began while no process listened is lost, not missed by coming late.
        receiver.joined_at = task["joined_at"] or receiver.joined_at
        link.send(READY, receiver.joined_at)
        _Receiving(link, subscriber, receiver, gaps).run()


class _Receiving:
    """Passes on what is multicast, and says what is lost of it."""

    def __init__(
        self,
        link: GatewayLink,
        subscriber: ServiceSubscriber,
        receiver: MulticastReceiver,
        gaps: deque[Gap],
    ) -> None:
        self._link = link
        self._subscriber = subscriber
        self._receiver = receiver
        self._gaps = gaps
        self._poller = link.poller()
        self._poller.register(subscriber.socket, zmq.POLLIN)
        self._reached: dict[bytes, int] = {}
        self._reaches_at = 0.0
        self._may_have_reached = True

    def run(self) -> None:
        """Receive until told to close."""
        link = self._link
        while not link.is_orphaned() and not _is_to_close(link):
            messages = self._subscriber.take(MANY)
            if messages:
                link.send(MESSAGES, [relayed(message) for message in messages])
                self._may_have_reached = True
            if len(messages) < MANY:
                # Nothing waits: what these say is behind all that was passed on.
                self._report()
            link.beat()
            if not messages:
                wait(self._poller, min(link.beats_at, self._next_deadline()))
                # A record of a publisher is no message.
                self._may_have_reached = True

    def _next_deadline(self) -> float:
        due = self._subscriber.next_deadline()
        return min(due, self._reaches_at) if self._may_have_reached else due

    def _report(self) -> None:
        while self._gaps:
            gap = self._gaps.popleft()
            self._link.send(GAP, gap.origin, gap.sequence, gap.count)
        now = time.monotonic()
        if self._may_have_reached and now >= self._reaches_at:
            self._may_have_reached = False
            reached = {origin: one.expected for origin, one in self._receiver.senders.items()}
            if reached != self._reached:
                self._reached, self._reaches_at = reached, now + _REACHED_SECONDS
                self._link.send(REACHED, reached)


def _is_to_close(link: GatewayLink) -> bool:
    try:
        return unpack(link.socket.recv(zmq.NOBLOCK))[0] == CLOSE
    except zmq.Again:
        return False


def send(link: GatewayLink, task: dict[str, Any]) -> None:
    """Multicast what the gateway says, until it ends."""
    options = PublisherOptions(dialect="zmq", multicast=Multicast(**task["multicast"]), on_full="block")
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

    def run(self) -> None:
        """Publish until told to close."""
        link = self._link
        poller = link.poller()
        while not link.is_orphaned():
            link.beat()
            wait(poller, link.beats_at)
            try:
                kind, body = unpack(link.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                continue
            if kind == CLOSE:
                return
            if kind == GAP:
                self._publisher.report_loss(None)
            else:
                messages, number = body
                for message in messages:
                    self._publish(unpack_message(message))
                self._skip_to(number)

    def _skip_to(self, number: int) -> None:
        if number > self._number:
            self._publisher.report_loss(number - self._number)
            self._number = number

    def _publish(self, message: Relayed) -> None:
        self._skip_to(message.sequence)
        publisher, subject = self._publisher, message.subject
        try:
            refused = publisher.sender.publish(publisher.socket, subject, message.payload, extras_of(message))
            if refused is not None:
                # RATE is reached.
                for pause in publisher.try_again(subject, refused):
                    self._link.rest(pause)
                    # The gateway must know that this is not stuck.
                    self._link.beat()
        except (OzError, TypeError, ValueError):
            # It keeps its number, and is found missing.
            self._publisher.report_loss(1)
        self._number += 1


def main(argument: str) -> None:
    """Receive or send for a gateway until it ends, as the argument says."""
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
