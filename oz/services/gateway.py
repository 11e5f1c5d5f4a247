"""The gateway: local applications on one side, multicast on the other, and processes that may die between."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import zmq

from oz.errors import OzError
from oz.logs import peer_logger
from oz.numbers import check_number
from oz.protocol.bridge.bridge import Relaying
from oz.protocol.messages import Gap, Message
from oz.protocol.multicast.options import Multicast
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.services.link import (
    ADVISORY,
    GAP,
    MANY,
    MESSAGES,
    REACHED,
    READY,
    Numbering,
    Relayed,
    extras_of,
    pack,
    relayed,
    unpack_message,
    with_origin,
)
from oz.services.sockets import ServiceSubscriber
from oz.services.waiting import Bell, look_again, wait
from oz.services.worker import Worker
from oz.sync.publisher_engine import ThreadedPublisher
from oz.transport.capabilities import require_pgm
from oz.transport.endpoints import as_list
from oz.transport.multicast.endpoint import parts as endpoint_parts
from oz.transport.publisher.options import PublisherOptions
from oz.transport.security import Security
from oz.transport.subscriber.subscribing import EVERYTHING

_log = peer_logger("oz.gateway")

ADVISORIES = "_OZ.gateway."
"""What subjects of advisories begin with; behind it `gap`, `down`, `up` or the kind of an `oz.Advisory`."""

HOLDS = 5.0
"""Seconds for which messages wait in their publishers while the sender is down; then they are dropped."""

_LOCAL = b"_LOCAL."


@dataclass
class GatewayStats:
    """The counts of a gateway so far: messages, unless it says otherwise."""

    received: int = 0
    """That came by multicast and were passed on to local subscribers."""
    lost: int = 0
    """That were multicast and did not arrive, which local subscribers were told."""
    sent: int = 0
    """Of local publishers that were handed to the sender."""
    unsent: int = 0
    """Of local publishers that were lost here or on the way here, which multicast subscribers were told."""
    refused: int = 0
    """That cannot be passed on, as their subject is not one that oz publishes."""
    restarts: int = 0
    """Starts of a multicast process after it had ended."""


class Gateway:
    """Passes messages between local applications and multicast.

    The multicast sockets are in processes of their own, one to receive and one to send. When one ends, it is
    started again; local applications stay connected, and are told what was lost in between.

    Attributes:
        stats: what it did so far.
        publisher: the engine of what local applications subscribe to.
        subscriber: what local applications publish to; None when nothing is sent.
    """

    def __init__(
        self,
        *,
        receive: str | Iterable[str] = (),
        send: str | None = None,
        subscribers: str | Iterable[str] = (),
        publishers: str | Iterable[str] = (),
        multicast: Multicast | None = None,
        echo: bool = True,
        keep_origins: bool = True,
        limits: Limits = DEFAULT_LIMITS,
        security: Security | None = None,
    ) -> None:
        """Bind to the local endpoints; `run` starts the processes.

        Args:
            receive: where multicast is heard, such as `epgm://192.0.2.7;239.192.1.1:5555`; or a list.
            send: where to multicast what local applications publish; a UDP port of its own on this host.
            subscribers: where local applications subscribe, `ipc://…` or `tcp://…`; or a list.
            publishers: where local applications publish with `oz.Publisher(connect=…)`; or a list.
            multicast: the options of both multicast sockets.
            echo: whether local subscribers also get what local publishers publish. PGM does not bring it
                back to the host that sent it.
            keep_origins: whether messages carry, as headers, who published them first and under which number.
            limits: how much a local application may use; docs/limits.md.
            security: demands keys of local applications, and holds them to permissions. What is multicast is
                not encrypted, and anybody may send it.

        Raises:
            TransportUnavailable: this libzmq has no PGM; says the line that adds it.
            ValueError: nothing to receive and nothing to send, or one side without the other.
            EndpointError: what is to be received or sent is no multicast endpoint.
            zmq.ZMQError: a local endpoint cannot be bound to.
        """
        _check(as_list(receive), send, as_list(subscribers), as_list(publishers))
        require_pgm()
        self.stats = GatewayStats()
        self._echo = echo and bool(send)
        self._keep_origins = keep_origins
        self._relaying = Relaying()
        self._numbering = Numbering()
        self._joined_at = 0
        self._is_stopping = self._has_more = False
        self._directory = tempfile.TemporaryDirectory(prefix="oz-gateway-")
        place = Path(self._directory.name)
        self._options = asdict(multicast or Multicast())
        self._receiver = self._sender = None
        self.subscriber: ServiceSubscriber | None = None
        self._bell = Bell()
        self.publisher = ThreadedPublisher(PublisherOptions(dialect="zmq", limits=limits, security=security))
        self._bound: list[str] = []
        self._taken: list[str] = []
        try:
            for endpoint in as_list(subscribers):
                self.publisher.bind(endpoint)
                self._bound.append(self.publisher.endpoint or endpoint)
            if receive:
                self._receiver = Worker("receiver", lambda: self._receiving(as_list(receive)), place)
            if send:
                self._sender = Worker("sender", lambda: self._sending([send]), place)
                self.subscriber = ServiceSubscriber(
                    filtering="publisher", on_gap=self._note_loss, limits=limits, security=security
                )
                self.subscriber.subscribe([EVERYTHING])
                self._taken += map(self.subscriber.bind, as_list(publishers))
        except BaseException:
            self.close()
            raise

    def _receiving(self, endpoints: list[str]) -> dict[str, Any]:
        return {"endpoints": endpoints, "multicast": self._options, "joined_at": self._joined_at}

    def _sending(self, endpoints: list[str]) -> dict[str, Any]:
        return {"endpoints": endpoints, "multicast": self._options, **self._numbering.resume()}

    @property
    def workers(self) -> list[Worker]:
        """The processes: that which receives, and that which sends, as far as there are any."""
        return [one for one in (self._receiver, self._sender) if one is not None]

    @property
    def is_ready(self) -> bool:
        """Whether both processes work."""
        return all(one.is_ready for one in self.workers)

    @property
    def subscribers_at(self) -> list[str]:
        """The endpoints where local applications subscribe, with the ports that a `*` became."""
        return self._bound

    @property
    def publishers_at(self) -> list[str]:
        """The endpoints where local applications publish."""
        return self._taken

    def stop(self) -> None:
        """Make `run` return soon; any thread or signal handler may call it."""
        self._is_stopping = True
        self.wake()

    def wake(self) -> None:
        """Make `run` see to everything now; any thread or signal handler may call it."""
        self._bell.ring()

    def run(self, look: Callable[[], object] | None = None) -> None:
        """Pass messages on until `stop`.

        Args:
            look: called whenever something was done, and ten times a second, or at the time of the monotonic
                clock that it returns, a float.

        Raises:
            WorkerFailed: a multicast process could not begin: a wrong interface, a port that is taken.
        """
        again = 0.0
        with self._bell.rung_by_signals():
            while not self._is_stopping:
                self._turn(again)
                again = look_again(look)

    def turn(self, seconds: float = 0) -> None:
        """Pass on what is there, and see to the processes.

        Args:
            seconds: to wait at most when nothing is there.

        Raises:
            WorkerFailed: as `run`.
        """
        check_number("seconds", seconds)
        self._turn(time.monotonic() + seconds)

    def _turn(self, until: float) -> None:
        if not self._has_more:
            self._wait(until)
        now = time.monotonic()
        for worker in self.workers:
            was_ready = worker.is_ready
            for kind, body in worker.watch(now):
                self._take(kind, body)
            if worker.is_ready != was_ready:
                self._say("up" if worker.is_ready else "down", process=worker.role)
        self.stats.restarts = sum(one.restarts for one in self.workers)
        self._has_more = self._pass_up(now)

    def _wait(self, until: float) -> None:
        """Wait until something comes, is due, or somebody rings."""
        poller = zmq.Poller()
        poller.register(self._bell, zmq.POLLIN)
        now = time.monotonic()
        may_pass_up = self._may_pass_up(now)
        for worker in self.workers:
            worker.register(poller, wants_room=worker is self._sender and worker.is_ready and not may_pass_up)
            until = min(until, worker.next_deadline())
        if self.subscriber is not None and self._sender is not None:
            if may_pass_up:
                poller.register(self.subscriber.socket, zmq.POLLIN)
                until = min(until, self.subscriber.next_deadline())
            elif not self._sender.is_ready:
                until = min(until, self._sender.down_since + HOLDS)
        wait(poller, until)
        self._bell.hear()

    # from multicast to local applications ----------------------------------------------------------------

    def _take(self, kind: int, body: Any) -> None:
        if kind == MESSAGES:
            for message in body[0]:
                self._pass_down(unpack_message(message))
        elif kind == GAP:
            origin, sequence, count = body
            self._lose(origin, None if count is None else self._relaying.lose(origin, sequence, count))
        elif kind == REACHED:
            for origin, sequence in body[0].items():
                self._lose(origin, self._relaying.reach(origin, sequence))
        elif kind == ADVISORY:
            name, endpoint, text = body
            _log.warning("multicast: %s", text)
            self._say(name, endpoint=endpoint, text=text)
        elif kind == READY and body[0]:
            self._joined_at = self._joined_at or body[0]

    def _pass_down(self, message: Relayed) -> None:
        lost, seen = self._relaying.take(message.origin, message.sequence, 1)
        self._lose(message.origin, lost)
        if not seen:
            self.stats.received += 1
            self._publish(message)

    def _publish(self, message: Relayed) -> None:
        try:
            one = with_origin(message) if self._keep_origins else message
            self.publisher.publish(one.subject, one.payload, extras_of(one))
        except (OzError, TypeError, ValueError) as error:
            self.stats.refused += 1
            self.publisher.report_loss(1)
            _log.warning("a message on %r is not passed on: %s", message.subject, error)

    def _lose(self, origin: bytes, count: int | None) -> None:
        """Tell local subscribers that messages are lost."""
        if count == 0:
            return
        self.stats.lost += count or 0
        self.publisher.report_loss(count)
        self._say("gap", origin=origin.hex(), count=count)

    def _say(self, kind: str, **what: Any) -> None:
        """Publish an advisory, for subscribers that do not count."""
        self.publisher.publish(f"{ADVISORIES}{kind}", json.dumps(what).encode())

    # from local applications to multicast ----------------------------------------------------------------

    def _may_pass_up(self, now: float) -> bool:
        sender = self._sender
        if sender is None:
            return False
        if sender.is_ready:
            return sender.has_room()
        return now >= sender.down_since + HOLDS

    def _pass_up(self, now: float) -> bool:
        """Hand on what local applications published; tell whether there was anything."""
        if self.subscriber is None or not self._may_pass_up(now):
            return False
        self._tell_gap()
        messages = self.subscriber.take(MANY)
        batch = [one for message in messages if (one := self._numbered(message)) is not None]
        if self._numbering.reported < self._numbering.number:
            self._hand_over(batch)
        return bool(messages)

    def _numbered(self, message: Message) -> Relayed | None:
        """Assign a message the number that it is multicast under."""
        one = with_origin(relayed(message)) if self._keep_origins else relayed(message)
        if self._echo:
            self._publish(one)
        if one.subject.startswith(_LOCAL):
            return None
        return one._replace(origin=b"", sequence=self._numbering.take())

    def _hand_over(self, batch: list[Relayed]) -> None:
        assert self._sender is not None
        if self._sender.send(pack(MESSAGES, batch, self._numbering.number)):
            self._numbering.reported = self._numbering.number
            self.stats.sent += len(batch)
        else:
            # Their numbers are taken: whoever listens finds them missing.
            self.stats.unsent += len(batch)

    def _note_loss(self, gap: Gap) -> None:
        """Pass on that messages of a local publisher are lost."""
        if self._echo:
            self.publisher.report_loss(gap.count)
        self._numbering.lose(gap.count)
        self.stats.unsent += gap.count or 0
        self._tell_gap()

    def _tell_gap(self) -> None:
        """Tell the sender of a loss that nobody has counted, as soon as there is room for that."""
        if self._sender is not None:
            self._numbering.tell_gap(self._sender.send)

    # the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the processes and close the sockets. A second call does nothing."""
        if self.subscriber is not None:
            self.subscriber.close()
        for worker in self.workers:
            worker.begin_close()
        for worker in self.workers:
            worker.close()
        self._receiver = self._sender = None
        self.publisher.close()
        self._bell.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        """Use it in `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _check(receive: list[str], send: str | None, subscribers: list[str], publishers: list[str]) -> None:
    if not receive and not send:
        raise ValueError("nothing to receive and nothing to send: give receive=…, send=… or both")
    if receive and not subscribers:
        raise ValueError("what is received is for nobody: give subscribers=… or --bind, where it goes")
    if bool(send) != bool(publishers):
        raise ValueError("send and publishers go together: where to multicast, and where to take it from")
    # To install PGM helps nobody whose endpoint is none of multicast.
    for one in (*receive, *([send] if send else ())):
        endpoint_parts(one)
