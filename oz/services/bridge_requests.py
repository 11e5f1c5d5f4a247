"""Requests that a forwarder passes on. The forwarder replaces the `reply_to` with its own, and passes replies back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oz.errors import ClosedError, OzError, ReplyError, Timeout
from oz.logs import peer_logger
from oz.message import Extras
from oz.node.replies import ERROR, encode_error
from oz.node.requests import Request
from oz.publisher.engine import Outgoing
from oz.services import bridge_rules as rules
from oz.subscriber.message import Message
from oz.wire.extras import encode_extras

if TYPE_CHECKING:
    from oz.services.bridge import ForwarderStats
    from oz.services.bridge_leg import Leg

REQUEST_TIMEOUT = 60.0
"""Maximum seconds that a forwarder waits for the replies to a request."""

_log = peer_logger("oz.forwarder")


class Crossing:
    """Request that a forwarder passes on to one or more buses.

    Attributes:
        requests: requests that the forwarder has sent on the other buses.
        failure: error of a request that could not be sent, or that ended without a reply; None without an error.
    """

    def __init__(self, stats: ForwarderStats, leg: Leg, message: Message) -> None:
        self._stats, self._leg, self._message = stats, leg, message
        self._is_answered = False
        self.requests: list[Request] = []
        self.failure: OzError | None = None

    def begin(self, own: bytes, group: str | None, targets: list[Leg]) -> None:
        """Send the request on the other buses: to one member of a group, or to all plain subscriptions.

        Args:
            own: id of the forwarder.
            group: name of the group in which the forwarder received the request; None if it received the request with a
                plain subscription.
            targets: legs on the other buses that the request may enter.
        """
        leg, message = self._leg, self._message
        source = rules.source_of_message(message)
        extras = rules.extras_of(message._extras, source, own, is_request=True)
        content = Outgoing(message.subject, message.subject_bytes, message.payload, extras, None)
        is_many = bool(message._extras is not None and message._extras.to_all)
        excluded = leg.side.forwarders | rules.forwarder_ids(source.via)
        first = source.position % len(targets)
        for other in targets[first:] + targets[:first]:
            try:
                route = other.publisher.request_route(message, group, excluded)
                request = other.engine.exchange.begin(
                    content, self.notify, timeout=REQUEST_TIMEOUT, is_many=is_many, route=route
                )
            except OzError as failure:
                self.failure = None if is_many else failure
                continue
            self.requests.append(request)
            self._stats.requests += 1
            self._stats.passed += 1
            if group is not None and request.holders:
                break
        self.notify()

    def notify(self) -> None:
        """Send new replies to the requester. If all requests have ended without a reply, send an error."""
        for request in self.requests:
            while request.replies:
                reply = request.replies.popleft()
                if isinstance(reply, ReplyError):
                    self._fail(reply)
                else:
                    extras = None if reply._extras is None else encode_extras(Extras(reply._extras.headers))
                    self._send(reply.payload, extras)
            if request.error is not None and not isinstance(request.error, (Timeout, ClosedError)):
                self.failure = request.error
        has_ended = all(request.has_ended for request in self.requests)
        if has_ended and self.failure is not None and not self._is_answered:
            self._fail(self.failure)

    def _fail(self, error: OzError) -> None:
        found = (
            [error.kind, error.text]
            if isinstance(error, ReplyError)
            else encode_error(error, is_hidden=False)
        )
        self._send(b"", {ERROR: found})

    def _send(self, payload: bytes, extras: dict[str, Any] | None) -> None:
        self._is_answered = True
        self._stats.replies += 1
        try:
            self._leg.engine.exchange.send_reply(self._message.reply_to or "", payload, extras)
        except OzError as error:
            _log.warning("a reply to %r was not passed back: %s", self._message.subject, error)
