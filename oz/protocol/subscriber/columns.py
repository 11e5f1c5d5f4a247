"""Batches as columns: as they are given, and as messages are made of them.

For the other path, of a lone frame, see `decoder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from oz.compiled import HOT
from oz.errors import ProtocolError
from oz.message import BARE, Extras
from oz.protocol.messages import DELIVERED, Arrival, Message, RichMessage, RoutedMessage
from oz.protocol.subscriber.subscriptions import Route, SubscriptionTable
from oz.wire.batch import parse_body
from oz.wire.extras import decode_extras
from oz.wire.keys import OWN

if HOT is not None:
    HOT.know_messages(RoutedMessage, Route)

_BYTES_ONLY = {bytes}


class PlainBatch:
    """Messages of two frames that were taken one after another, as columns: see `MessageBatch`.

    Attributes:
        subjects: of each; as `Message.subject`.
        payloads: of each; bytes.
        times: when each was taken from the socket, in nanoseconds since 1970.
    """

    __slots__ = ("payloads", "subjects", "times")

    route = DELIVERED
    origin: bytes | None = None
    sequence: int | None = None
    positions: Sequence[int] | None = None

    def __init__(self) -> None:
        """Begin with none; for subscribers."""
        self.subjects: list[str] = []
        self.payloads: list[bytes] = []
        self.times: list[int] = []

    def __len__(self) -> int:
        """Count the messages."""
        return len(self.subjects)

    @property
    def time_ns(self) -> int:
        """When the first was taken from the socket."""
        return self.times[0]

    def messages(self) -> list[Message]:
        """Make the messages."""
        return [
            Message(subject, payload, [subject.encode(errors="surrogateescape"), payload], DELIVERED, time_ns)
            for subject, payload, time_ns in zip(self.subjects, self.payloads, self.times, strict=True)
        ]


class MessageBatch:
    """Routed messages that came together, as columns: for those who have no use for one at a time.

    Attributes:
        subjects: of each; bytes.
        payloads: of each; bytes.
        is_text: whether all subjects are known to be UTF-8.
        arrival: what they have in common. All of them were new: they are numbered from its sequence on.
        size: bytes of the frame that they came in.
    """

    __slots__ = ("_routes", "arrival", "is_text", "payloads", "size", "subjects")

    route = DELIVERED

    def __init__(
        self,
        subjects: list[bytes],
        payloads: list[bytes],
        routes: list[Any],
        arrival: Arrival,
        *,
        is_text: bool,
        size: int,
    ) -> None:
        """For subscribers."""
        self.subjects = subjects
        self.payloads = payloads
        self.is_text = is_text
        self.size = size
        self.arrival = arrival
        self._routes = routes

    def __len__(self) -> int:
        """Count the messages."""
        return len(self.subjects)

    @property
    def origin(self) -> bytes:
        """The publisher."""
        return self.arrival.origin

    @property
    def sequence(self) -> int:
        """The number of the first message."""
        return self.arrival.sequence

    @property
    def positions(self) -> Sequence[int] | None:
        """The position of each message; None where the publisher gives none."""
        return self.arrival.positions

    @property
    def time_ns(self) -> int:
        """When they were taken from the socket, in nanoseconds since 1970."""
        return self.arrival.time_ns

    def messages(self) -> list[Message]:
        """Make the messages."""
        made = None if HOT is None else HOT.make(self.payloads, self._routes, self.arrival)
        return _make(self.payloads, self._routes, self.arrival) if made is None else made


def _make(payloads: list[bytes], routes: list[Any], arrival: Arrival) -> list[Message]:
    names = [route.subject for route in routes]
    return list(map(RoutedMessage, names, payloads, routes, repeat(arrival), range(len(names))))


Arrived = Message | MessageBatch | PlainBatch
"""What `receive_batches` gives."""


class BatchColumns:
    """The messages of one frame, a list for each thing that is known of them.

    Attributes:
        subjects: of each.
        routes: whom each is for.
        payloads: of each; bytes, or a list of those of several frames.
        extras: of each, or None; none at all where every payload is bytes and nothing else.
        is_clear: nothing is to be counted or looked at for any of them.
    """

    __slots__ = ("_is_text", "_size", "extras", "is_clear", "payloads", "routes", "subjects")

    extras: list[Extras | None] | None

    def __init__(
        self,
        subjects: list[Any],
        payloads: list[Any],
        attached: list[bytes],
        size: int,
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
            size: bytes of the frame.
            table: of the stream that it came on.
            routes: of each subject, where all of them were remembered.
            is_plain: all payloads are known to be bytes.

        Raises:
            ProtocolError: something in them is malformed.
        """
        self._size = size
        self.subjects = subjects
        self.routes, self.is_clear, self._is_text = _find_routes(table, subjects, routes)
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
            self.is_clear = False

    def whole(self, arrival: Arrival) -> MessageBatch:
        """Return all of them, still as columns; only where none has extras or several frames."""
        return MessageBatch(
            self.subjects, self.payloads, self.routes, arrival, is_text=self._is_text, size=self._size
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
        return BatchColumns(body[0::2], body[1::2], attached, len(frame), table)
    subjects, payloads, routes = plain
    return BatchColumns(subjects, payloads, attached, len(frame), table, routes, is_plain=True)


def _find_routes(
    table: SubscriptionTable, subjects: list[Any], known: list[Any] | None
) -> tuple[list[Route], bool, bool]:
    """Return the route of each subject, and tell whether all are clear, and whether all are text."""
    try:
        routes: list[Any] = list(map(table.routes.get, subjects)) if known is None else known
    except TypeError:
        raise ProtocolError("a subject in a batch is not bytes") from None
    if known is not None or None not in routes:
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
