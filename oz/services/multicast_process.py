"""Process with the multicast socket of a gateway. If libpgm ends the process, the gateway starts a new process.

The command is `python -m oz.services.multicast_process JSON`. The argument describes the task. A PAIR socket connects
the process to the gateway. The gateway keeps the standard input of the process open. The process ends when its standard
input is closed.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from functools import partial
from math import inf
from typing import Any

import zmq

from oz.errors import OzError, ProtocolError
from oz.message import Extras
from oz.multicast.group import silence_libpgm
from oz.multicast.listening import Listener
from oz.multicast.receiver import Effect, Loss
from oz.multicast.sender import Sender
from oz.multicast.sending import Transmitter
from oz.multicast.watchdog import Notice
from oz.options import Multicast
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
    pack,
    unpack,
    unpack_message,
)
from oz.system import POLLHUP, POLLIN, make_poll
from oz.transport.bell import poll_until
from oz.wire.extras import decode_extras, encode_extras

FAILED = 3
"""Exit code after an error. The last line of the output is the text of the error."""

_REACHED_SECONDS = 0.2
"""Minimum seconds between two REACHED frames."""
_RECEIVED_FRAMES = 10_000  # Maximum number of frames that wait in the socket of the receiver.
_CLOSE_TIMEOUT = 2.0
_STDIN = 0
_clock = time.monotonic


class GatewayLink:
    """Link of a process to its gateway.

    Attributes:
        context: libzmq context of the process.
        socket: PAIR socket that is connected to the gateway.
        beats_at: time of the next BEAT frame.
    """

    def __init__(self, address: str) -> None:
        silence_libpgm()
        self.context: zmq.Context[Any] = zmq.Context()
        self.socket = self.context.socket(zmq.PAIR)
        self.socket.set(zmq.SNDHWM, 100)
        self.socket.set(zmq.RCVHWM, 100)
        self.socket.set(zmq.LINGER, round(_CLOSE_TIMEOUT * 1000))
        self.socket.connect(address)
        self._stdin = make_poll()
        self._stdin.register(_STDIN, POLLIN | POLLHUP)
        self._room = self.poller(zmq.POLLOUT)
        self.beats_at = 0.0

    def poller(self, flags: int = zmq.POLLIN) -> zmq.Poller:
        """Return a poller that waits for events of the link, and for the end of standard input.

        Args:
            flags: events of the link, such as `zmq.POLLIN`.
        """
        poller = zmq.Poller()
        poller.register(self.socket, flags)
        poller.register(_STDIN, zmq.POLLIN)
        return poller

    def is_orphaned(self) -> bool:
        """Return whether the gateway has ended."""
        return bool(self._stdin.poll(0))

    def send(self, kind: int, *body: Any) -> None:
        """Send a frame, and wait while the queue of the link is full."""
        frame = pack(kind, *body)
        while True:
            try:
                self.socket.send(frame, zmq.NOBLOCK)
                return
            except zmq.Again:
                if self.is_orphaned():
                    raise SystemExit(0) from None
                poll_until(self._room, inf)

    def receive(self) -> tuple[int, Any] | None:
        """Return the kind and the body of the next frame; None if no frame has arrived."""
        try:
            return unpack(self.socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def beat(self) -> None:
        """Send a BEAT if it is due."""
        now = _clock()
        if now >= self.beats_at:
            self.beats_at = now + BEAT_SECONDS
            self.send(BEAT)

    def close(self) -> None:
        """Send the waiting frames, and close all sockets of the process."""
        self.context.destroy()


class _Receiving:
    """Passes messages from multicast endpoints, and reports of lost messages, to the gateway in order."""

    def __init__(self, link: GatewayLink, task: dict[str, Any]) -> None:
        self._link = link
        options = Multicast(**task["multicast"])
        self._listeners = [
            Listener(
                link.context, endpoint, options,
                high_water_mark=_RECEIVED_FRAMES, on_notice=partial(self._send_notice, endpoint),
            )
            for endpoint in task["endpoints"]
        ]  # fmt: skip
        # `joined_at` is the time at which the first receiver process began to listen. If a publisher began later, while
        # no receiver process ran, the first messages of the publisher count as lost.
        for listener in self._listeners:
            listener.receiver.joined_at = task["joined_at"] or listener.receiver.joined_at
        self._poller = link.poller()
        for listener in self._listeners:
            self._poller.register(listener.socket, zmq.POLLIN)
        self._messages: list[Relayed] = []
        self._reached: dict[bytes, int] = {}
        self._reaches_at = 0.0

    def run(self) -> None:
        """Receive until the gateway ends or sends CLOSE."""
        link = self._link
        link.send(READY, min(listener.receiver.joined_at for listener in self._listeners))
        while not link.is_orphaned():
            frame = link.receive()
            if frame is not None and frame[0] == CLOSE:
                return
            is_empty = True
            for listener in self._listeners:
                for effect in listener.read(MANY):
                    self._apply(effect)
                for effect in listener.check(_clock()):
                    self._apply(effect)
                is_empty &= listener.is_empty
            self._send_messages()
            link.beat()
            if is_empty:
                # All received messages have been sent to the gateway. Therefore a REACHED frame arrives after them.
                self._report()
                poll_until(self._poller, min(link.beats_at, self._next_deadline()))

    def _next_deadline(self) -> float:
        due = [deadline for listener in self._listeners if (deadline := listener.next_deadline()) is not None]
        if self._state() != self._reached:
            due.append(self._reaches_at)
        return min(due, default=inf)

    def _state(self) -> dict[bytes, int]:
        return {
            origin: sender.expected
            for listener in self._listeners
            for origin, sender in listener.receiver.senders.items()
        }

    def _report(self) -> None:
        now, reached = _clock(), self._state()
        if now >= self._reaches_at and reached != self._reached:
            self._reached, self._reaches_at = reached, now + _REACHED_SECONDS
            self._link.send(REACHED, reached)

    def _apply(self, effect: Effect) -> None:
        if isinstance(effect, Loss):
            self._send_messages()
            self._link.send(GAP, effect.origin, effect.sequence, effect.count)
            return
        flat = effect.flat
        for sequence, at in enumerate(range(0, len(flat), 3), effect.sequence):
            subject, payload, found = flat[at : at + 3]
            try:
                extras = Extras() if found is None else decode_extras(found)
            except ProtocolError:
                # Skip a malformed message. The gateway detects that its number is missing.
                continue
            headers = None if extras.headers is None else dict(extras.headers)
            message = Relayed(effect.origin, sequence, subject, payload, headers, extras.message_id)
            self._messages.append(message)
        if len(self._messages) >= MANY:
            self._send_messages()

    def _send_messages(self) -> None:
        messages, self._messages = self._messages, []
        if messages:
            self._link.send(MESSAGES, messages)

    def _send_notice(self, endpoint: str, notice: Notice) -> None:
        self._link.send(ADVISORY, notice.kind, endpoint, notice.text)


class _Sending:
    """Multicasts the messages from the gateway, with the numbers that the gateway has assigned."""

    def __init__(self, link: GatewayLink, task: dict[str, Any]) -> None:
        self._link = link
        options = Multicast(**task["multicast"])
        socket = link.context.socket(zmq.XPUB)
        socket.setsockopt(zmq.LINGER, round(_CLOSE_TIMEOUT * 1000))
        self._transmitter = Transmitter(socket, options, refuses=True)
        self._sender = Sender(bytes.fromhex(task["origin"]), options, epoch=task["epoch"])
        self._sender.resume(task["next"], task["age"], _clock())
        for endpoint in task["endpoints"]:
            self._transmitter.attach(endpoint)
        self._sender.attach()
        self._incoming, self._both = link.poller(), link.poller()
        self._both.register(socket, zmq.POLLOUT)

    def run(self) -> None:
        """Send until the gateway sends CLOSE, and then repair losses for a while. End at once if the gateway ends."""
        link, sender = self._link, self._sender
        link.send(READY, 0)
        while not link.is_orphaned():
            self._turn()
            if sender.frames:
                # The socket accepts no more frames at present. Further messages wait in the gateway.
                poll_until(self._both, min(link.beats_at, sender.next_beat))
                continue
            poll_until(self._incoming, min(link.beats_at, sender.next_beat))
            frame = link.receive()
            if frame is None:
                continue
            kind, body = frame
            if kind == CLOSE:
                break
            if kind == GAP:
                sender.skip(None, _clock())
            else:
                self._add(*body)
        sender.leave(_clock())
        while not link.is_orphaned() and _clock() < sender.stays_until:
            self._turn()
            poll_until(self._incoming, min(sender.next_beat, sender.stays_until))

    def _turn(self) -> None:
        self._link.beat()
        self._sender.beat(_clock())
        self._transmitter.send(self._sender)

    def _add(self, messages: list[Any], following: int) -> None:
        sender, now = self._sender, _clock()
        flat: list[Any] = []
        for fields in messages:
            message = unpack_message(fields)
            expected = sender.sequence + len(flat) // 3
            if message.sequence > expected:
                if flat:
                    sender.add(flat, now)
                    flat = []
                sender.skip(message.sequence - sender.sequence, now)
            extras = encode_extras(Extras(message.headers, None, message.id))
            flat += (message.subject, message.payload, extras or None)
        if flat:
            sender.add(flat, now)
        if following > sender.sequence:
            sender.skip(following - sender.sequence, now)


def main(argument: str) -> None:
    """Receive or send for a gateway until the gateway ends. The argument describes the task as JSON."""
    # Ctrl-C reaches all processes of the terminal. Ignore it here, because the gateway then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = json.loads(argument)
    link = GatewayLink(task["link"])
    try:
        (_Receiving if task["role"] == "receiver" else _Sending)(link, task).run()
    except (OzError, ValueError, TypeError, zmq.ZMQError) as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(FAILED) from None
    finally:
        link.close()


if __name__ == "__main__":
    main(sys.argv[1])
