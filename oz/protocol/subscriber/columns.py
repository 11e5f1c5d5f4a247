"""A batch as columns, of which messages are made; for the other path, of a lone frame, see `decoder`."""

from __future__ import annotations

from typing import Any

from oz.errors import ProtocolError
from oz.message import BARE, Arrival, Extras, Message, MessageBatch, RichMessage, RoutedMessage
from oz.protocol.subscriber.subscriptions import Route, SubscriptionTable
from oz.wire.extras import decode_extras
from oz.wire.keys import OWN

_BYTES_ONLY = {bytes}


class BatchColumns:
    """The messages of one frame, a list for each thing that is known of them.

    Attributes:
        routes: whom each is for.
        payloads: of each; bytes, or a list of those of several frames.
        extras: of each, or None; none at all where every payload is bytes and nothing else.
        is_clear: nothing is to be counted or looked at for any of them.
    """

    __slots__ = ("_is_text", "_size", "_subjects", "extras", "is_clear", "payloads", "routes")

    extras: list[Extras | None] | None

    def __init__(
        self,
        subjects: list[Any],
        payloads: list[Any],
        attached: list[bytes],
        size: int,
        table: SubscriptionTable,
    ) -> None:
        """Find out about all that came in a frame.

        Args:
            subjects: as the body of the frame has them.
            payloads: the same.
            attached: the large payloads that came behind it.
            size: bytes of the frame.
            table: of the stream that it came on.

        Raises:
            ProtocolError: something in them is malformed.
        """
        self._size = size
        self._subjects = subjects
        self.routes, self.is_clear, self._is_text = _find_routes(table, subjects)
        if set(map(type, payloads)) == _BYTES_ONLY:
            self.payloads, self.extras = payloads, None
        else:
            large = iter(attached)
            opened = [_open(payload, large) for payload in payloads]
            self.payloads = [payload for payload, _ in opened]
            self.extras = [extras for _, extras in opened]

    def whole(self, arrival: Arrival) -> MessageBatch:
        """Return all of them, still as columns; only where none has extras or several frames."""
        return MessageBatch(
            self._subjects, self.payloads, self.routes, arrival, is_text=self._is_text, size=self._size
        )

    def message(self, place: int, route: Route, payload: Any, arrival: Arrival) -> Message:
        """Make one message.

        Args:
            place: which.
            route: whom it is for, perhaps of its route.
            payload: as it is shown.
            arrival: what it has in common with the others.
        """
        body = self.payloads[place]
        extras = None if self.extras is None else self.extras[place]
        if extras is None and payload is body:
            return RoutedMessage(route.subject, payload, route, arrival, place)
        return RichMessage(route.subject, payload, route, body, extras or BARE, arrival, place)


def _find_routes(table: SubscriptionTable, subjects: list[Any]) -> tuple[list[Route], bool, bool]:
    """Return the route of each subject, and tell whether all are clear, and whether all are text."""
    try:
        routes: list[Any] = list(map(table.routes.get, subjects))
    except TypeError:
        raise ProtocolError("a subject in a batch is not bytes") from None
    if None not in routes:
        return routes, not table.unclear, not table.undecoded
    for place, route in enumerate(routes):
        if route is None:
            if type(subjects[place]) is not bytes or subjects[place].startswith(OWN):
                raise ProtocolError("a subject in a batch is not bytes, or one of oz's own keys")
            routes[place] = table.routes.get(subjects[place]) or table.route(subjects[place])
    # Not by what the table counts: it may have been full, and have forgotten some of them.
    is_clear = all(route.is_clear for route in routes)
    return routes, is_clear, all(route.is_text for route in routes)


def _open(payload: Any, large: Any) -> tuple[Any, Extras | None]:
    """Return the bytes and the extras of a payload.

    Raises:
        ProtocolError: it is not of a form that payloads have, or a large one is missing.
    """
    extras = None
    if type(payload) is list:
        if len(payload) != 2:
            raise ProtocolError("a payload with extras is not payload and map")
        payload, extras = payload[0], decode_extras(payload[1])
        if type(payload) is list:
            if not payload or set(map(type, payload)) != _BYTES_ONLY:
                raise ProtocolError("the frames of a payload are not bytes")
            return payload, extras
    if payload is None:
        payload = next(large, None)
    if type(payload) is not bytes:
        raise ProtocolError("a payload is not bytes, or a large one is missing")
    return payload, extras
