"""Batches as columns, of which messages are made.

For the other path, of a lone frame, see `decoder`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oz.compiled import HOT
from oz.errors import ProtocolError
from oz.message import BARE, Extras
from oz.protocol.messages import Arrival, Message, RichMessage, RoutedMessage
from oz.protocol.subscriber.subscriptions import Route, SubscriptionTable
from oz.wire.batch import parse_body
from oz.wire.extras import decode_extras
from oz.wire.keys import OWN

_BYTES_ONLY = {bytes}


class BatchColumns:
    """The messages of one frame, a list for each thing that is known of them.

    Attributes:
        subjects: of each.
        routes: whom each is for.
        payloads: of each; bytes, or a list of those of several frames.
        extras: of each, or None; none at all where every payload is bytes and nothing else.
    """

    __slots__ = ("extras", "payloads", "routes", "subjects")

    extras: list[Extras | None] | None

    def __init__(
        self,
        subjects: list[Any],
        payloads: list[Any],
        attached: list[bytes],
        table: SubscriptionTable,
        routes: list[Any] | None = None,
        *,
        is_plain: bool = False,
    ) -> None:
        """Find out about all that came in a frame.

        Args:
            subjects: as the body of the frame has them.
            payloads: the same.
            attached: the large payloads that came behind it.
            table: of the stream that it came on.
            routes: of each subject, where all of them were remembered.
            is_plain: all payloads are known to be bytes.

        Raises:
            ProtocolError: something in them is malformed.
        """
        self.subjects = subjects
        self.routes = _find_routes(table, subjects, routes)
        if is_plain or set(map(type, payloads)) == _BYTES_ONLY:
            self.payloads, self.extras = payloads, None
        else:
            large = iter(attached)
            opened = [_open(payload, large) for payload in payloads]
            self.payloads = [payload for payload, _ in opened]
            self.extras = [extras for _, extras in opened]

    def deny(self, places: Iterable[int]) -> None:
        """Take some of them from everybody.

        Args:
            places: which.
        """
        for place in places:
            route = self.routes[place]
            self.routes[place] = Route(route.subject, (), (), is_text=route.is_text)

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


def read_columns(
    frame: bytes, at: int, count: int, attached: list[bytes], table: SubscriptionTable
) -> BatchColumns:
    """Read the body of a batch.

    Args:
        frame: the whole frame.
        at: where the body begins.
        count: the messages that the head speaks of.
        attached: the large payloads that came behind it.
        table: of the stream that it came on.

    Raises:
        ProtocolError: it is malformed.
    """
    plain = None if HOT is None else HOT.unpack(frame, at, count, table.routes)
    if plain is None:
        body = parse_body(frame, at, count)
        return BatchColumns(body[0::2], body[1::2], attached, table)
    subjects, payloads, routes = plain
    return BatchColumns(subjects, payloads, attached, table, routes, is_plain=True)


def _find_routes(table: SubscriptionTable, subjects: list[Any], known: list[Any] | None) -> list[Route]:
    """Return the route of each subject."""
    try:
        routes: list[Any] = list(map(table.routes.get, subjects)) if known is None else known
    except TypeError:
        raise ProtocolError("a subject in a batch is not bytes") from None
    if known is not None or None not in routes:
        return routes
    for place, route in enumerate(routes):
        if route is None:
            if type(subjects[place]) is not bytes or subjects[place].startswith(OWN):
                raise ProtocolError("a subject in a batch is not bytes, or one of oz's own keys")
            routes[place] = table.routes.get(subjects[place]) or table.route(subjects[place])
    return routes


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
