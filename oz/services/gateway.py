"""The gateway: passes messages between local programs and multicast sockets in other processes.

Theory of operation
-------------------
libpgm ends its process if it receives a malformed packet. Therefore the multicast sockets are in two other processes, a
receiver and a sender. If one of them ends, the gateway starts it again. The gateway keeps the sequence numbers. A new
sender continues the sequence of the previous sender. `Relaying` keeps the next number of each multicast publisher. So
the gateway detects each loss, and local subscribers receive a gap at the position of the lost messages
(`Publisher.report_loss`).

Local subscribers have links to the publisher of the gateway. The gateway has links to local publishers that bind. Local
publishers that connect to the gateway send plain messages. The gateway cannot detect their losses, and does not pass on
their headers.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import zmq

from oz.errors import ConfigurationError, OzError, Timeout
from oz.logs import peer_logger
from oz.message import Gap, Message
from oz.multicast.endpoints import parts as endpoint_parts
from oz.options import Filtering, Multicast, Options
from oz.publisher.sync import Publisher
from oz.services.link import (
    ADVISORY,
    GAP,
    MANY,
    MESSAGES,
    REACHED,
    READY,
    Numbering,
    Relayed,
    pack,
    unpack_message,
    with_origin,
)
from oz.services.relaying import Relaying
from oz.services.service import Service
from oz.services.worker import Worker
from oz.subscriber.sync import Subscriber
from oz.transport.bell import poll_until
from oz.transport.capabilities import require_pgm
from oz.transport.endpoints import as_list

_log = peer_logger("oz.gateway")

ADVISORIES = "_OZ.gateway."
"""Prefix of the subjects of advisories. An advisory is a message about an event of the gateway.

The rest of the subject is `gap`, `down`, `up`, or the kind of a notice.
"""

HOLD_SECONDS = 5.0
"""Seconds for which local publishers keep messages while the sender is down. Then the gateway reads and drops them."""

ATTEND_SECONDS = 1.0
"""Maximum seconds between two polls of the subscriber, because it answers its publishers only when it is polled."""

_LOCAL = b"_LOCAL."


@dataclass
class GatewayStats:
    """Counters of a gateway. All except `restarts` count messages."""

    received: int = 0
    """Number of multicast messages that were published to local subscribers."""
    lost: int = 0
    """Number of multicast messages that did not reach the gateway. Local subscribers received gaps."""
    sent: int = 0
    """Number of local messages that were passed to the sender."""
    unsent: int = 0
    """Number of local messages that did not reach the sender. Multicast subscribers receive gaps."""
    refused: int = 0
    """Number of messages that the publisher of the gateway refused, because of their subject or headers."""
    restarts: int = 0
    """Number of times that the gateway has restarted a multicast process."""


class Gateway(Service):
    """Passes messages between local programs and multicast.

    `run` raises `WorkerError` if a multicast process cannot start. Causes are a wrong interface, or a port in use.

    Attributes:
        stats: counters of the gateway.
        publisher: publisher to which local subscribers connect.
        sources: subscribers for the messages of local publishers: one with links, and one for plain publishers.
        subscribers_at: bound endpoints for local subscribers, with the real ports.
        publishers_at: endpoints that the gateway has bound for local publishers, and endpoints of local publishers to
            which it connects.
    """

    def __init__(
        self,
        *,
        receive: str | Iterable[str] = (),
        send: str | None = None,
        subscribers: str | Iterable[str] = (),
        publishers: str | Iterable[str] = (),
        connect: str | Iterable[str] = (),
        multicast: Multicast | None = None,
        echo: bool = True,
        keep_origins: bool = True,
        options: Options | None = None,
        security: Any = None,
    ) -> None:
        """Bind to the local endpoints; `run` starts the processes.

        Args:
            receive: multicast endpoints to receive, such as `epgm://192.0.2.7;239.192.1.1:5555`.
            send: multicast endpoint to which messages of local publishers are sent. No other publisher may use the UDP
                port of this endpoint.
            subscribers: endpoints to bind for local subscribers, `ipc://…` or `tcp://…`.
            publishers: endpoints to bind for local publishers, `Publisher(connect=…)`. The gateway has no links to
                these publishers.
            connect: endpoints of local publishers, `Publisher(bind=…)`. The gateway has links to these publishers.
                Therefore it detects their losses and keeps their headers.
            multicast: options of both multicast sockets.
            echo: whether local subscribers also receive the messages of local publishers. PGM does not deliver
                messages to the host that has sent them.
            keep_origins: whether the gateway adds two headers to a message: the id of the first publisher, and the
                position of the message at that publisher.
            options: options of the sockets for local programs.
            security: keys and permissions for local programs. Multicast is not encrypted or authenticated.

        Raises:
            EndpointError: an endpoint cannot be used, or libzmq has no PGM. If PGM is missing, the text shows how to
                add it.
            ConfigurationError: no multicast endpoint is given, `receive` is given without `subscribers`, or only one of
                `send` and the endpoints of publishers is given.
        """
        ups = [*as_list(publishers), *as_list(connect)]
        _check(as_list(receive), send, as_list(subscribers), ups)
        require_pgm()
        super().__init__()
        self.stats = GatewayStats()
        self._echo = echo and bool(send)
        self._keep_origins = keep_origins
        self._relaying = Relaying()
        self._numbering = Numbering()
        self._joined_at = 0
        self._has_more = False
        self._directory = tempfile.TemporaryDirectory(prefix="oz-gateway-")
        place = Path(self._directory.name)
        self._options = asdict(multicast or Multicast())
        self._receiver = self._sender = None
        self.sources: list[Subscriber] = []
        options = options or Options()
        self.publisher = Publisher(dialect="zmq", options=options, security=security)
        self.subscribers_at: list[str] = []
        self.publishers_at: list[str] = []
        self._attend_at = 0.0
        try:
            for endpoint in as_list(subscribers):
                self.publisher.bind(endpoint)
                self.subscribers_at.append(self.publisher.endpoint or endpoint)
            if receive:
                self._receiver = Worker("receiver", lambda: self._receiving(as_list(receive)), place)
            if send:
                self._sender = Worker("sender", lambda: self._sending([send]), place)
                self._open_sources(as_list(connect), as_list(publishers), options, security)
        except BaseException:
            self.close()
            raise

    def _open_sources(self, connect: list[str], bind: list[str], options: Options, security: Any) -> None:
        ways: tuple[tuple[Filtering, list[str]], ...] = (("publisher", connect), ("prefix", bind))
        for filtering, endpoints in ways:
            if endpoints:
                made = Subscriber(
                    filtering=filtering, on_gap=self._report_source_loss, options=options, security=security
                )
                self.sources.append(made)
                made.subscribe(b"")
        for endpoint in connect:
            self.sources[0].connect(endpoint)
        self.publishers_at += [self.sources[-1].bind(endpoint) for endpoint in bind]
        self.publishers_at += connect

    def _receiving(self, endpoints: list[str]) -> dict[str, Any]:
        return {"endpoints": endpoints, "multicast": self._options, "joined_at": self._joined_at}

    def _sending(self, endpoints: list[str]) -> dict[str, Any]:
        return {"endpoints": endpoints, "multicast": self._options, **self._numbering.resume()}

    @property
    def _workers(self) -> list[Worker]:
        return [worker for worker in (self._receiver, self._sender) if worker is not None]

    @property
    def is_ready(self) -> bool:
        """Whether all processes of the gateway have opened their endpoints."""
        return all(worker.is_ready for worker in self._workers)

    def _turn(self, until: float) -> None:
        if not self._has_more:
            self._wait(until)
        now = time.monotonic()
        for worker in self._workers:
            was_ready = worker.is_ready
            for kind, body in worker.watch(now):
                self._handle_frame(kind, body)
            if worker.is_ready != was_ready:
                self._publish_advisory("up" if worker.is_ready else "down", process=worker.role)
        self.stats.restarts = sum(worker.restarts for worker in self._workers)
        self._has_more = self._pass_up(now)

    def _wait(self, until: float) -> None:
        poller = zmq.Poller()
        poller.register(self._bell, zmq.POLLIN)
        now = time.monotonic()
        may_pass_up = self._may_pass_up(now)
        for worker in self._workers:
            worker.register(poller, wants_room=worker is self._sender and worker.is_ready and not may_pass_up)
            until = min(until, worker.next_deadline())
        if self._sender is not None:
            if may_pass_up:
                for source in self.sources:
                    poller.register(source.fileno(), zmq.POLLIN)
                until = min(until, self._attend_at)
            elif not self._sender.is_ready:
                until = min(until, self._sender.down_since + HOLD_SECONDS)
        poll_until(poller, until)

    # From multicast to local programs.

    def _handle_frame(self, kind: int, body: Any) -> None:
        if kind == MESSAGES:
            for message in body[0]:
                self._pass_down(unpack_message(message))
        elif kind == GAP:
            origin, sequence, count = body
            self._report_multicast_loss(
                origin, None if count is None else self._relaying.lose(origin, sequence, count)
            )
        elif kind == REACHED:
            for origin, sequence in body[0].items():
                self._report_multicast_loss(origin, self._relaying.take(origin, sequence, 0)[0])
        elif kind == ADVISORY:
            name, endpoint, text = body
            _log.warning("multicast: %s", text)
            self._publish_advisory(name, endpoint=endpoint, text=text)
        elif kind == READY and body[0]:
            self._joined_at = self._joined_at or body[0]

    def _pass_down(self, message: Relayed) -> None:
        lost, seen = self._relaying.take(message.origin, message.sequence, 1)
        self._report_multicast_loss(message.origin, lost)
        if not seen:
            self.stats.received += 1
            self._publish(message)

    def _publish(self, message: Relayed) -> None:
        try:
            relayed = with_origin(message) if self._keep_origins else message
            self.publisher.publish(relayed.subject, relayed.payload, headers=relayed.headers, id=relayed.id)
        except (OzError, TypeError, ValueError) as error:
            self.stats.refused += 1
            self.publisher.report_loss(1)
            _log.warning(
                "a message on %r is not passed on, and counts as lost: %s; change its publisher. "
                "`stats.refused` counts these messages",
                message.subject,
                error,
            )

    def _report_multicast_loss(self, origin: bytes, count: int | None) -> None:
        if count == 0:
            return
        self.stats.lost += count or 0
        self.publisher.report_loss(count)
        self._publish_advisory("gap", origin=origin.hex(), count=count)

    def _publish_advisory(self, kind: str, **what: Any) -> None:
        """Publish an advisory: a message whose payload describes an event of the gateway as JSON."""
        self.publisher.publish(f"{ADVISORIES}{kind}", json.dumps(what).encode())

    # From local programs to multicast.

    def _may_pass_up(self, now: float) -> bool:
        sender = self._sender
        if sender is None:
            return False
        if sender.is_ready:
            return sender.has_room()
        return now >= sender.down_since + HOLD_SECONDS

    def _pass_up(self, now: float) -> bool:
        """Pass messages of local publishers to the sender; return whether a source had messages."""
        has_more = False
        for source in self.sources:
            if not self._may_pass_up(now):
                break
            self._attend_at = now + ATTEND_SECONDS
            self._send_gap()
            try:
                messages = source.receive_many(MANY, timeout=0)
            except Timeout:
                messages = []
            batch = [relayed for message in messages if (relayed := self._numbered(message)) is not None]
            if self._numbering.reported < self._numbering.number:
                self._send_batch(batch)
            has_more |= bool(messages)
        return has_more

    def _numbered(self, message: Message) -> Relayed | None:
        """Return a message with its multicast number; None if the message may not leave this host."""
        headers = dict(message.headers) or None
        relayed = Relayed(
            message.origin or b"",
            message.position or 0,
            message.subject_bytes,
            message.payload,
            headers,
            message.id,
        )
        if self._keep_origins:
            relayed = with_origin(relayed)
        if self._echo:
            self._publish(relayed)
        if relayed.subject.startswith(_LOCAL):
            return None
        return relayed._replace(origin=b"", sequence=self._numbering.take())

    def _send_batch(self, batch: list[Relayed]) -> None:
        assert self._sender is not None
        if self._sender.send(pack(MESSAGES, batch, self._numbering.number)):
            self._numbering.reported = self._numbering.number
            self.stats.sent += len(batch)
        else:
            # The numbers of these messages are used up. Therefore subscribers detect the loss.
            self.stats.unsent += len(batch)

    def _report_source_loss(self, gap: Gap) -> None:
        """Report a loss of messages from a local publisher to local subscribers and to multicast subscribers."""
        if self._echo:
            self.publisher.report_loss(gap.count)
        self._numbering.lose(gap.count)
        self.stats.unsent += gap.count or 0
        self._send_gap()

    def _send_gap(self) -> None:
        """Report a loss of unknown size to the sender, if such a report is due and the queue has space."""
        if self._sender is not None:
            self._numbering.send_gap(self._sender.send)

    # Close.

    def _release(self, timeout: float | None) -> None:
        end = inf if timeout is None else time.monotonic() + timeout
        for source in self.sources:
            source.close()
        for worker in self._workers:
            worker.begin_close()
        for worker in self._workers:
            worker.close(max(0.0, end - time.monotonic()))
        self.publisher.close(timeout=None if timeout is None else max(0.0, end - time.monotonic()))
        self._directory.cleanup()


def _check(receive: list[str], send: str | None, subscribers: list[str], publishers: list[str]) -> None:
    if not receive and not send:
        raise _wrong(
            "receive", receive, "nothing to receive and nothing to send: give receive=, send= or both"
        )
    if receive and not subscribers:
        raise _wrong(
            "subscribers", subscribers, "received messages need subscribers: give subscribers= or --bind"
        )
    if bool(send) != bool(publishers):
        raise _wrong("send", send, "send= needs publishers= or connect=, and each of these needs send=")
    # Check the endpoints before PGM: for an endpoint that is not multicast, "no PGM" would be a misleading error.
    for endpoint in (*receive, *([send] if send else ())):
        endpoint_parts(endpoint)


def _wrong(name: str, value: object, rule: str) -> ConfigurationError:
    return ConfigurationError(name, value, "argument", rule)
