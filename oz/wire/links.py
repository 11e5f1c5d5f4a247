"""Frames of links: each kind of message between the publisher and the subscriber of a link.

Theory of operation
-------------------
A message on a link has two frames: the routing id, which the ROUTER needs, and one frame of this protocol. If a
protocol message had several frames, a connection could be lost between two of them, and libzmq would abort. The first
byte of a frame is its kind. Numbers are big-endian; structures are MessagePack.

A batch of messages consists of a *head* and a *body*. The head contains the sequence number, the stream and the number
of dropped messages in one session. The body contains subjects and payloads. All sessions that receive the same messages
share one body. A head is followed by its body: the next BODY frame on the same connection. A small body and its head
are sent together in one frame (JOINED).

The decoders accept any bytes. For a malformed frame they raise `ProtocolError`, and they compare counts with sizes
before they allocate memory. MessagePack values need limits: the library msgpack allocates an array as soon as it has
read the length, and accepts 1,024 nested levels. `max_array_len` limits the length at each level. In memory, small
nested values are 80 times larger than on the wire. Therefore the size of control frames is limited, and hooks stop the
decoding at nested values where the protocol has none.

==== ======= ============ =========================================================================
kind name    receiver     content
==== ======= ============ =========================================================================
01   HELLO   publisher    `Hello`
02   WELCOME subscriber   `Welcome`
03   DECLARE publisher    `Declare`: added and removed subscriptions
04   ANSWER  subscriber   `Answer`: revision that the publisher applied last, and refused subscriptions
05   BATCH   subscriber   `Head`; the body is the next frame
06   PING    subscriber   `Ping`: next sequence number, number of waiting and dropped messages
07   ACK     publisher    `Ack`: next expected sequence number, progress of streams with `ack="handled"`
09   BYE     either side  `Bye`
0a   JOINED  subscriber   `Head` and body in one frame
90…  BODY    subscriber   subject, payload and extras of each message
==== ======= ============ =========================================================================

Stream 0 is the *direct* stream: it exists in each session without a declaration, and its messages need not match a
pattern. HELLO and WELCOME may end with a *card*, which introduces a node (`Card`). Other programs send no card.

The page `docs/wire.md` documents each field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

import msgpack

from oz.compiled import HOT
from oz.errors import ProtocolError

VERSION = 1

HELLO, WELCOME, DECLARE, ANSWER, BATCH, PING, ACK = range(1, 8)
BYE, JOINED = 9, 10

REDELIVERED, WITHDRAWN = 1, 2
"""Flags of a head. A withdrawn batch has no body, because another member of the group has received its messages."""

LAST_PART = 1
"""Flag of the last part of a declaration."""

CLOSED, KEY_REFUSED, OTHER_VERSION, LIMIT, MALFORMED, OTHER_BUS, OWN_ID, LOST = range(8)
"""Reasons in a BYE for the end of the session."""

PUBLISHER, SUBSCRIBER = 0, 1
"""Roles in a BYE: the side that has sent the frame."""

PING_INTERVAL = 1.5
"""Length of a ping interval in seconds. A session with pending messages gets a PING in each interval. If the publisher
has few sessions, idle sessions also get a PING in each interval."""
MAX_BEATS = 4
"""Maximum number of ping intervals between two PINGs of an idle session."""
SLOW_PINGS = 20
"""An idle link sends an ACK every `SLOW_PINGS` ping intervals. A silent session gets a PING at the same rate."""
SLOW_AFTER = 2 * SLOW_PINGS * PING_INTERVAL
"""A session is silent when no frame of the subscriber has arrived for this number of seconds. An idle link sends two
ACKs in this time."""

DIRECT = 0
"""Number of the direct stream, which exists in each session without a declaration."""

UNKNOWN_EPOCH = bytes(16)
"""Epoch of a link before its first WELCOME."""

MAX_COUNT = 1_024
"""Maximum number of messages in a batch."""
MAX_PART = 65_536
"""Maximum size in bytes of one part of a declaration, and of an ANSWER."""
MAX_CONTROL = 1 << 20
"""Maximum size in bytes of a frame that is neither a batch nor a body."""
MAX_STREAMS = 1_024
"""Maximum number of streams with subscriptions in one session."""
MAX_NUMBER = 2**62 - 1
"""Largest allowed sequence number, position and number of drops. The sum of two such numbers fits into 64 bits."""
MAX_DIFFERENCE = 2**32 - 1
"""Largest allowed difference between the positions of two successive messages in a batch."""
SID = "sid"
"""Key in the extras of a last value, for the number of the subscription that receives the last value."""
HEAD_BYTES = 32
"""Size in bytes of a head whose field `differences` is empty."""

MAX_ENTRIES = 2_048
"""Maximum number of entries of an array in a control frame. A longer declaration is split into several parts. If there
are more refusals, an ANSWER contains only the newest ones."""
MAX_CARD = 16_384
"""Maximum size of a card in bytes."""
MAX_ENDPOINTS = 64
"""Maximum number of endpoints in a card."""
MAX_CARD_TEXT = 512
"""Maximum length in characters of an endpoint or a name in a card."""
_MAX_KEYS = 65_536  # Maximum number of streams in a PING, an ACK or a BYE.
_LARGE_BODY = (1 << 20) + (1 << 17)  # Bytes. A larger body may have only one message.
_MAX_FIELDS = 1_024  # Maximum number of entries of a map in the extras of a message.

_HELLO = Struct(">BB16s16s16sIQIII")
_WELCOME = Struct(">BB16s16sIQIIII")
_DECLARE = Struct(">BIIB")
_ANSWER = Struct(">BIQ")
_HEAD = Struct(">BBHQIQQ")
_PING = Struct(">BQIB")
_ACK = Struct(">BQ")
_BYE = Struct(">BBBQ")
_KIND_AND_VERSION = Struct(">BB")

_EMPTY = b"\x80"  # An empty map.
_JOINED_KIND = bytes([JOINED])


class UnsupportedVersion(ProtocolError):
    """A HELLO or WELCOME has another version of the protocol.

    Attributes:
        version: number of the protocol version that the peer uses.
    """

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the peer uses version {version} of the link protocol, this oz uses version {VERSION}: "
            "install the same release of oz on both sides"
        )
        self.version = version


class Hello(NamedTuple):
    """First message of a subscriber on each connection.

    Attributes:
        session: random id of the link object, 16 bytes.
        member: random id of the subscriber, 16 bytes. All links of a subscriber have the same member id.
        epoch: epoch of the last WELCOME; `UNKNOWN_EPOCH` before the first WELCOME.
        attempt: number of the connection among all connections of the link.
        expected: sequence number that the subscriber expects next.
        answered: revision of the last ANSWER in this epoch.
        largest_frame: maximum size in bytes of a frame that the subscriber accepts.
        largest_window: maximum number of unacknowledged batches that the subscriber accepts.
        card: encoded card that introduces a node (see `decode_card`); empty for other subscribers.
    """

    session: bytes
    member: bytes
    epoch: bytes
    attempt: int
    expected: int
    answered: int
    largest_frame: int
    largest_window: int
    card: bytes = b""


class Welcome(NamedTuple):
    """Answer to HELLO.

    Attributes:
        origin: id of the publisher's process, 16 bytes.
        epoch: random id of the session, 16 bytes. Sequence numbers of different epochs cannot be compared.
        attempt: attempt number in the HELLO that this frame answers.
        first: sequence number of the next message.
        applied: revision of the declaration that was applied last.
        window: maximum number of unacknowledged batches.
        window_bytes: the window is full when it holds this number of unacknowledged bytes.
        largest_frame: maximum size in bytes of a frame that the publisher accepts.
        card: encoded card that introduces a node; empty for other publishers.
    """

    origin: bytes
    epoch: bytes
    attempt: int
    first: int
    applied: int
    window: int
    window_bytes: int
    largest_frame: int
    card: bytes = b""


class StreamOptions(NamedTuple):
    """Delivery options of a stream. Subscriptions with equal options share a stream.

    Attributes:
        group: name of the queue group; None for a plain stream.
        policy: policy of the group: "round_robin", "sticky" or "failover".
        overflow: "drop_newest", "drop_oldest" or "conflate". With None, `on_full` of the publisher decides.
        max_pending: maximum number of messages in the backlog; 0 means the high-water mark of the publisher.
        handled: whether a message counts as delivered only when the subscriber has handled it (`ack="handled"`).
        redeliver: whether messages of a lost member go to other members of the group.
        prefetch: the group prefers other members when a member has this number of unacknowledged messages; 0 means the
            default.
    """

    group: str | None = None
    policy: str = "round_robin"
    overflow: str | None = None
    max_pending: int = 0
    handled: bool = False
    redeliver: bool = False
    prefetch: int = 0


DEFAULT_OPTIONS = StreamOptions()
"""Options of a plain stream."""


class Item(NamedTuple):
    """One pattern of a declaration.

    Attributes:
        sid: number of the subscription; it is never reused in the session.
        stream: number of the subscription's stream.
        dialect: name of the pattern's dialect.
        text: text of the pattern.
        last_value: whether the publisher first sends the newest message of each matching subject.
    """

    sid: int
    stream: int
    dialect: str
    text: str | bytes
    last_value: bool = False


class Declare(NamedTuple):
    """One part of a declaration: a change of a subscriber's subscriptions.

    Attributes:
        revision: number of the change.
        base: in the first part, the earlier revision to which the change applies; 0 replaces all subscriptions. In
            later parts, the same number as `revision`.
        is_last: whether this part completes the change.
        streams: options of each stream that `items` mention.
        items: added subscriptions.
        removed: numbers of removed subscriptions. A negative number means that the subscription is drained: it receives
            no new messages, and the session keeps earlier messages until a later change removes the subscription.
    """

    revision: int
    base: int
    is_last: bool
    streams: dict[int, StreamOptions]
    items: list[Item]
    removed: list[int]


class Refusal(NamedTuple):
    """A subscription that the publisher does not serve.

    Attributes:
        sid: number of the subscription.
        reason: text that explains the refusal.
        rule: permission rule that denies the subscription; empty if no rule of the permissions decided. None if the
            refusal has another cause than permissions.
        witness: example of a subject that the pattern matches and the rule denies, or None.
    """

    sid: int
    reason: str
    rule: str | None = None
    witness: str | None = None


class Answer(NamedTuple):
    """Answer to a declaration.

    Attributes:
        revision: revision of the declaration that was applied last.
        refused: all refused subscriptions. None requests a complete declaration, for example because the publisher does
            not know the base of the declaration.
        position: position of the publisher's next message.
    """

    revision: int
    refused: list[Refusal] | None
    position: int = 0


class Head(NamedTuple):
    """Head of a batch.

    Attributes:
        flags: `REDELIVERED`, `WITHDRAWN`, their sum, or 0.
        stream: number of the stream.
        sequence: sequence number of the first message.
        count: number of messages.
        drops: number of messages that the stream has dropped in this epoch before this batch.
        position: position of the first message among all messages of the publisher.
        differences: differences between the positions of successive messages, each encoded in 32 bits. Empty if all
            differences are 1.
    """

    flags: int
    stream: int
    sequence: int
    count: int  # type: ignore[assignment]
    drops: int
    position: int
    differences: bytes

    def positions(self) -> Sequence[int]:
        """Return the positions of all messages."""
        if not self.differences:
            return range(self.position, self.position + self.count)
        position, positions = self.position, [self.position]
        for (difference,) in _DIFFERENCE.iter_unpack(self.differences):
            position += difference
            positions.append(position)
        return positions


class Drops(NamedTuple):
    """Numbers of waiting and dropped messages of a stream at the publisher.

    Attributes:
        pending: number of messages that the socket has not accepted.
        full: number of messages that were dropped because the backlog was full.
        conflated: number of messages that were replaced by a newer message with the same subject.
        too_large: number of messages that were larger than the subscriber accepts.
        denied: number of messages that permissions denied.
        unknown: number of losses of unknown size that happened before the publisher, for example in a gateway.
    """

    pending: int = 0
    full: int = 0
    conflated: int = 0
    too_large: int = 0
    denied: int = 0
    unknown: int = 0

    @property
    def dropped(self) -> int:
        """Total number of dropped messages."""
        return self.full + self.conflated + self.too_large + self.denied


class Ping(NamedTuple):
    """Heartbeat of a publisher.

    Attributes:
        following: sequence number of the first message that the socket has not accepted.
        applied: revision of the declaration that was applied last.
        streams: dict from stream numbers to `Drops`. Streams without pending and dropped messages are left out.
        beats: maximum number of ping intervals until the next PING, from 1 to `MAX_BEATS`.
    """

    following: int
    applied: int
    streams: dict[int, Drops]
    beats: int = 1


class Ack(NamedTuple):
    """Acknowledgement of a subscriber.

    Attributes:
        expected: sequence number that the subscriber expects next.
        marks: dict from the numbers of streams with `ack="handled"` to the lowest unhandled sequence number.
    """

    expected: int
    marks: dict[int, int]


class Bye(NamedTuple):
    """End of a session.

    Attributes:
        reason: `CLOSED`, `KEY_REFUSED`, `OTHER_VERSION`, `LIMIT`, `MALFORMED`, `OTHER_BUS`, `OWN_ID` or `LOST`.
        role: role of the sender, `PUBLISHER` or `SUBSCRIBER`.
        following: if a publisher sends the BYE, the sequence number of its next message. If a subscriber sends the BYE,
            the sequence number that it expects next.
        streams: pending and dropped messages, as in `Ping.streams`.
    """

    reason: int
    role: int
    following: int
    streams: dict[int, Drops]


NODE, NAMESERVER, FORWARDER = "node", "nameserver", "forwarder"
"""Kinds of nodes."""


class Card(NamedTuple):
    """Description of a node, which the node sends in its HELLO and WELCOME.

    Attributes:
        node: id of the node, 16 bytes. It is equal to `Hello.member` and `Welcome.origin` of the node.
        bus: name of the bus to which the node belongs.
        name: name of the node.
        host: name of the node's host.
        pid: process id of the node.
        endpoints: endpoints at which the node listens.
        kind: `NODE`, `NAMESERVER` or `FORWARDER`.
    """

    node: bytes
    bus: str
    name: str
    host: str = ""
    pid: int = 0
    endpoints: tuple[str, ...] = ()
    kind: str = NODE

    def shares_bus(self, other: Card) -> bool:
        """Return whether two nodes may be peers: they belong to the same bus, or one is a name server for all buses."""
        return self.bus == other.bus or any(
            card.kind == NAMESERVER and not card.bus for card in (self, other)
        )


# Encoders


def encode_hello(hello: Hello) -> bytes:
    """Return the frame of a HELLO."""
    return _HELLO.pack(HELLO, VERSION, *hello[:-1]) + hello.card


def encode_welcome(welcome: Welcome) -> bytes:
    """Return the frame of a WELCOME."""
    return _WELCOME.pack(WELCOME, VERSION, *welcome[:-1]) + welcome.card


def encode_declare(declare: Declare) -> bytes:
    """Return the frame of one part of a declaration."""
    head = _DECLARE.pack(DECLARE, declare.revision, declare.base, LAST_PART if declare.is_last else 0)
    streams = [(number, _map_of(options)) for number, options in declare.streams.items()]
    return head + _pack((streams, [_entry_of(item) for item in declare.items], declare.removed))


def split_declaration(
    revision: int,
    base: int,
    streams: Mapping[int, StreamOptions],
    items: Sequence[Item],
    removed: Sequence[int],
) -> list[bytes]:
    """Return the frames of a declaration, each at most `MAX_PART` bytes long.

    Args:
        revision: number of the change.
        base: earlier revision to which the change applies; 0 replaces all subscriptions.
        streams: options of each stream that `items` mention.
        items: added subscriptions.
        removed: numbers of removed subscriptions; a negative number means that the subscription is drained.
    """
    parts: list[tuple[dict[int, StreamOptions], list[Item], list[int]]] = [({}, [], [])]
    room = MAX_PART - 64
    entries: list[Item | int] = [*removed, *items]
    for entry in entries:
        size = 5
        if isinstance(entry, Item):
            size = 32 + len(entry.text) * 4 + len(entry.dialect)
            if entry.stream not in parts[-1][0]:
                size += 128 + 4 * len(streams[entry.stream].group or "")
        is_full = size > room or len(parts[-1][1]) + len(parts[-1][2]) >= MAX_ENTRIES
        if is_full and (parts[-1][1] or parts[-1][2]):
            parts.append(({}, [], []))
            room = MAX_PART - 64
        room -= size
        if isinstance(entry, Item):
            parts[-1][0][entry.stream] = streams[entry.stream]
            parts[-1][1].append(entry)
        else:
            parts[-1][2].append(entry)
    last = len(parts) - 1
    return [
        encode_declare(Declare(revision, base if at == 0 else revision, at == last, *part))
        for at, part in enumerate(parts)
    ]


def encode_answer(answer: Answer) -> bytes:
    """Return the frame of an ANSWER.

    The frame contains at most `MAX_ENTRIES` refusals. If there are more refusals, or if they do not fit into `MAX_PART`
    bytes, only the newest 100 refusals keep their reasons.
    """
    head = _ANSWER.pack(ANSWER, answer.revision, answer.position)
    refused = answer.refused
    frame = head + _pack(refused)
    if refused and (len(frame) > MAX_PART or len(refused) > MAX_ENTRIES):
        kept = refused[-MAX_ENTRIES:]
        # Keep an empty rule, because it shows that permissions have denied the subscription.
        short = [
            Refusal(refusal.sid, "refused", None if refusal.rule is None else "") for refusal in kept[:-100]
        ]
        frame = head + _pack(short + [_cut_refusal(refusal) for refusal in kept[-100:]])
    return frame


def encode_head(
    flags: int, stream: int, sequence: int, count: int, drops: int, position: int, differences: bytes = b""
) -> bytes:
    """Return the frame of a BATCH. The parameters are the fields of `Head`."""
    return _HEAD.pack(BATCH, flags, stream, sequence, count, drops, position) + differences


def join(head: bytes, body: bytes) -> bytes:
    """Return the JOINED frame of a head and its body. The head must have no differences."""
    return joined_head(head) + body


def joined_head(head: bytes) -> bytes:
    """Return the part of a JOINED frame before the body. The head must have no differences."""
    return _JOINED_KIND + head[1:]


def encode_body(flat: Sequence[Any]) -> bytes:
    """Return the frame of a BODY.

    Args:
        flat: list with three items for each message: subject and payload as bytes, and extras as a dict or None.
    """
    return (_pack_body(flat) if _pack_body is not None else None) or _pack(flat)


def encode_ping(ping: Ping) -> bytes:
    """Return the frame of a PING."""
    return _PING.pack(PING, ping.following, ping.applied, ping.beats) + _pack_streams(ping.streams)


def silent_after(beats: int) -> float:
    """Return the seconds without a frame after which a subscriber must assume that a connection is lost.

    In this time, two PINGs should have arrived.

    Args:
        beats: maximum number of ping intervals between two PINGs, as announced in the last PING.
    """
    return 2 * beats * PING_INTERVAL + 0.5


def encode_ack(expected: int, marks: Mapping[int, int] | None = None) -> bytes:
    """Return the frame of an ACK. The parameters are the fields of `Ack`."""
    return _ACK.pack(ACK, expected) + (_pack(marks) if marks else _EMPTY)


def encode_bye(bye: Bye) -> bytes:
    """Return the frame of a BYE."""
    return _BYE.pack(BYE, bye.reason, bye.role, bye.following) + _pack_streams(bye.streams)


def encode_card(card: Card) -> bytes:
    """Return the bytes of a card for HELLO and WELCOME.

    Raises:
        ValueError: a peer would reject the card; see `decode_card`.
    """
    packed = _pack(card._asdict())
    try:
        decode_card(packed)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
    return packed


def check_card(card: bytes) -> bytes:
    """Check the size of an encoded card, and return the card.

    Raises:
        ValueError: the card has more than `MAX_CARD` bytes.
    """
    if len(card) > MAX_CARD:
        raise ValueError(f"a card of {len(card):,} bytes, at most {MAX_CARD:,} are allowed")
    return card


def encode_differences(positions: Sequence[int]) -> bytes:
    """Return the field `differences` of a head; empty if all positions are consecutive."""
    if positions[-1] - positions[0] == len(positions) - 1:
        return b""
    return b"".join([_DIFFERENCE.pack(after - before) for before, after in pairwise(positions)])


# Decoders


def decode_head(frame: bytes) -> Head:
    """Return the head of a BATCH frame, or the head in a JOINED frame.

    Raises:
        ProtocolError: the frame is too short, the count is not between 1 and `MAX_COUNT`, a number is above
            `MAX_NUMBER`, or the number of differences does not fit the count.
    """
    if len(frame) < HEAD_BYTES:
        raise ProtocolError(f"a head of {len(frame)} bytes, at least {HEAD_BYTES} are needed")
    kind, flags, stream, sequence, count, drops, position = _HEAD.unpack_from(frame)
    if not 0 < count <= MAX_COUNT:
        raise ProtocolError(f"a batch of {count} messages, 1 to {MAX_COUNT} are allowed")
    if max(sequence, drops, position) > MAX_NUMBER:
        raise ProtocolError(f"a head with a number above {MAX_NUMBER}")
    differences = b""
    if kind == BATCH and len(frame) > HEAD_BYTES:
        differences = frame[HEAD_BYTES:]
        if len(differences) != 4 * (count - 1) or flags & WITHDRAWN:
            raise ProtocolError(f"{len(differences)} bytes of differences in a batch of {count} messages")
    return Head(flags, stream, sequence, count, drops, position, differences)


def decode_body(body: bytes, count: int) -> list[Any]:
    """Return a list with three items for each message of a body: subject, payload and extras.

    Args:
        body: BODY frame, or the bytes of a JOINED frame behind its head.
        count: number of messages according to the head.

    Raises:
        ProtocolError: the body is malformed, or has another number of messages.
    """
    if 3 * count > len(body):
        raise ProtocolError(f"a body of {len(body)} bytes for {count} messages")
    flat = _unpack_large(body) if len(body) > _LARGE_BODY else _unpack(body, 3 * count)
    if type(flat) is not list or len(flat) != 3 * count:
        raise ProtocolError(f"a body has another number of messages than its head, which has {count}")
    if set(map(type, flat[0::3])) != _BYTES or set(map(type, flat[1::3])) != _BYTES:
        raise ProtocolError("a subject or a payload of a body is not binary")
    if not _EXTRAS.issuperset(map(type, flat[2::3])):
        raise ProtocolError("the extras of a message are neither a map nor nil")
    return flat


def scan_body(frame: bytes, at: int, count: int) -> Any:
    """Check a body in C code, without decoding it. Return an object that contains its messages.

    Return None if the caller must use `decode_body`: without the compiled part, or for a body with extras.

    Args:
        frame: frame that contains the body.
        at: index of the body's first byte in the frame.
        count: number of messages according to the head.
    """
    return None if _scan is None else _scan(frame, at, count)


def _unpack_large(body: bytes) -> Any:
    """Return the values of a large body, which may have only one message. Check the size of its extras."""
    reader = msgpack.Unpacker(max_buffer_size=len(body), max_array_len=0, max_map_len=0, max_ext_len=0)
    reader.feed(body)
    try:
        if reader.read_array_header() != 3:
            raise ProtocolError(f"a body of {len(body)} bytes has several messages")
        flat = [reader.unpack(), reader.unpack()]
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"a body does not decode: {error or type(error).__name__}") from None
    extras = body[reader.tell() :]
    if len(extras) > MAX_CONTROL:
        raise ProtocolError(f"extras of {len(extras)} bytes, at most {MAX_CONTROL} are allowed")
    return [*flat, _unpack(extras, MAX_ENTRIES)]


Control = Hello | Welcome | Declare | Answer | Ping | Ack | Bye


def decode_control(frame: bytes) -> Control:
    """Return the content of a control frame. A control frame is any frame except BATCH, JOINED and BODY.

    Raises:
        UnsupportedVersion: the frame is a HELLO or WELCOME of another protocol version.
        ProtocolError: the frame is malformed.
    """
    if not frame:
        raise ProtocolError("an empty frame is a probe and has no content")
    if len(frame) > MAX_CONTROL:
        raise ProtocolError(f"a frame of {len(frame)} bytes, at most {MAX_CONTROL} are allowed")
    decode = _DECODERS.get(frame[0])
    if decode is None:
        raise ProtocolError(f"kind {frame[0]:#04x} is unknown")
    try:
        return decode(frame)
    except StructError as error:
        raise ProtocolError(f"a frame of kind {frame[0]:#04x} with {len(frame)} bytes: {error}") from None
    except (TypeError, AttributeError) as error:
        raise ProtocolError(f"a field of kind {frame[0]:#04x} has another type: {error}") from None


def is_body(frame: bytes) -> bool:
    """Return whether a frame is a BODY. The frame must not be empty."""
    kind = frame[0]
    return 0x90 <= kind <= 0x9F or kind == 0xDC or kind == 0xDD


def _decode_hello(frame: bytes) -> Hello:
    _check_version(frame)
    return Hello(*_HELLO.unpack_from(frame)[2:], _card_behind(frame, _HELLO))  # type: ignore[call-arg]


def _decode_welcome(frame: bytes) -> Welcome:
    _check_version(frame)
    welcome = Welcome(*_WELCOME.unpack_from(frame)[2:], _card_behind(frame, _WELCOME))  # type: ignore[call-arg]
    if not welcome.window or not welcome.window_bytes:
        raise ProtocolError("the window of a WELCOME is zero")
    if welcome.first > MAX_NUMBER:
        raise ProtocolError(f"the first sequence of a WELCOME is above {MAX_NUMBER}")
    return welcome


def _card_behind(frame: bytes, fields: Struct) -> bytes:
    if len(frame) - fields.size > MAX_CARD:
        raise ProtocolError(f"a card of {len(frame) - fields.size} bytes, at most {MAX_CARD} are allowed")
    return frame[fields.size :]


def _decode_declare(frame: bytes) -> Declare:
    if len(frame) > MAX_PART:
        raise ProtocolError(f"a part of a declaration has {len(frame)} bytes, at most {MAX_PART} are allowed")
    _, revision, base, flags = _DECLARE.unpack_from(frame)
    if not revision:
        raise ProtocolError("revision 0 is the empty declaration")
    streams, items, removed = _tuple_of(_unpack(frame[_DECLARE.size :], MAX_ENTRIES), 3)
    options: dict[int, StreamOptions] = {}
    for entry in _list_of(streams):
        number, fields = _tuple_of(entry, 2)
        if type(number) is not int or not DIRECT < number < 65_536:
            raise ProtocolError(f"stream number {number!r}")
        options[number] = _options_of(fields)
    found: list[Item] = []
    for entry in _list_of(items):
        sid, stream, dialect, text, fields = _tuple_of(entry, 5)
        if type(sid) is not int or sid < 0 or type(stream) is not int or type(dialect) is not str:
            raise ProtocolError("a subscription has fields of another type")
        if stream <= DIRECT:
            raise ProtocolError(f"a subscription of stream {stream}")
        if type(text) is not str and type(text) is not bytes:
            raise ProtocolError("the text of a pattern is neither text nor binary")
        if type(fields) is not dict:
            raise ProtocolError("the options of a subscription are no map")
        found.append(Item(sid, stream, dialect, text, fields.get("last_value") is True))
    for sid in _list_of(removed):
        if type(sid) is not int:
            raise ProtocolError("a removed subscription is no number")
    return Declare(revision, base, bool(flags & LAST_PART), options, found, removed)


def _decode_answer(frame: bytes) -> Answer:
    _, revision, position = _ANSWER.unpack_from(frame)
    entries = _unpack(frame[_ANSWER.size :], MAX_ENTRIES)
    if entries is None:
        return Answer(revision, None, position)
    refused = []
    for entry in _list_of(entries):
        sid, reason, rule, witness = _tuple_of(entry, 4)
        if type(sid) is not int or type(reason) is not str:
            raise ProtocolError("a refusal has fields of another type")
        if not (rule is None or type(rule) is str) or not (witness is None or type(witness) is str):
            raise ProtocolError("a refusal has fields of another type")
        refused.append(Refusal(sid, reason, rule, witness))
    return Answer(revision, refused, position)


def _decode_ping(frame: bytes) -> Ping:
    _, following, applied, beats = _PING.unpack_from(frame)
    if not 0 < beats <= MAX_BEATS:
        raise ProtocolError(f"a PING names {beats} intervals")
    return Ping(following, applied, _streams_of(frame[_PING.size :]), beats)


def _decode_ack(frame: bytes) -> Ack:
    _, expected = _ACK.unpack_from(frame)
    packed = frame[_ACK.size :]
    if packed == _EMPTY:
        return Ack(expected, {})
    marks = _unpack(packed, 0, _MAX_KEYS, object_hook=_refuse_nested())
    if type(marks) is not dict:
        raise ProtocolError("the marks of an ACK are no map")
    for stream, mark in marks.items():
        if type(stream) is not int or type(mark) is not int or mark < 0:
            raise ProtocolError("a mark of an ACK is no number")
    return Ack(expected, marks)


def _decode_bye(frame: bytes) -> Bye:
    _, reason, role, following = _BYE.unpack_from(frame)
    return Bye(reason, role, following, _streams_of(frame[_BYE.size :]))


def decode_card(card: bytes) -> Card:
    """Decode a card. The bytes must not be empty.

    Raises:
        ProtocolError: the card is malformed.
    """
    if len(card) > MAX_CARD:
        raise ProtocolError(f"a card of {len(card)} bytes, at most {MAX_CARD} are allowed")
    fields = _unpack(card, MAX_ENDPOINTS, object_hook=_refuse_nested())
    if type(fields) is not dict:
        raise ProtocolError("the fields of a card are no map")
    node, pid, kind = fields.get("node"), fields.get("pid"), fields.get("kind")
    if type(node) is not bytes or len(node) != 16:
        raise ProtocolError("the id of a card does not have 16 bytes")
    bus, name, host = (_text_of(fields.get(key)) for key in ("bus", "name", "host"))
    endpoints = tuple(_text_of(endpoint) for endpoint in _list_of(fields.get("endpoints")))
    if type(pid) is not int or not 0 <= pid < 2**32:
        raise ProtocolError("the process id of a card is out of range")
    if kind not in _CARD_KINDS:
        raise ProtocolError("the kind of a card is unknown")
    return Card(node, bus, name, host, pid, endpoints, kind)


_pack_body = None if HOT is None else HOT.pack_body
_scan = None if HOT is None else HOT.scan
_DIFFERENCE = Struct(">I")
_BYTES = {bytes}
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_CARD_KINDS = (NODE, NAMESERVER, FORWARDER)
_EXTRAS = {dict, type(None)}
_DECODERS: dict[int, Callable[[bytes], Control]] = {
    HELLO: _decode_hello,
    WELCOME: _decode_welcome,
    DECLARE: _decode_declare,
    ANSWER: _decode_answer,
    PING: _decode_ping,
    ACK: _decode_ack,
    BYE: _decode_bye,
}


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def _refuse_nested() -> Callable[[dict[Any, Any]], dict[Any, Any]]:
    """Return a hook that stops the decoding at the second map. Otherwise nested maps could fill the memory."""
    found: list[None] = []

    def count(value: dict[Any, Any]) -> dict[Any, Any]:
        if found:
            raise ValueError("a map holds another map")
        found.append(None)
        return value

    return count


def _check_numbers(value: list[Any]) -> list[Any]:
    """Stop the decoding at an array that contains anything but numbers."""
    for number in value:
        if type(number) is not int or number < 0:
            raise ValueError("a number of dropped messages is no number")
    return value


def _unpack(packed: bytes, longest: int, max_keys: int = _MAX_FIELDS, **hooks: Callable[[Any], Any]) -> Any:
    try:
        return msgpack.unpackb(
            packed,
            max_array_len=longest,
            max_map_len=max_keys,
            max_ext_len=0,
            strict_map_key=False,
            **hooks,
        )
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError, MemoryError) as error:
        raise ProtocolError(f"a MessagePack value does not decode: {error or type(error).__name__}") from None


def _check_version(frame: bytes) -> None:
    _, version = _KIND_AND_VERSION.unpack_from(frame)
    if version != VERSION:
        raise UnsupportedVersion(version)


def _text_of(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_CARD_TEXT:
        raise ProtocolError(f"a field of a card is no text of at most {MAX_CARD_TEXT} characters")
    if _CONTROLS.search(value):
        # Control characters in names could change a terminal or a log, and libzmq would read them in endpoints.
        raise ProtocolError("a text of a card has control characters")
    return value


def _list_of(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ProtocolError("a field is no array")
    return value


def _tuple_of(value: Any, size: int) -> list[Any]:
    if type(value) is not list or len(value) != size:
        raise ProtocolError(f"a field is no array of {size} entries")
    return value


def _map_of(options: StreamOptions) -> dict[str, Any]:
    """Return the map to send for the options of a stream. The map does not contain options with default values."""
    fields = {
        name: value
        for name, value, default in zip(options._fields, options, DEFAULT_OPTIONS, strict=True)
        if value != default and name != "handled"
    }
    if options.handled:
        fields["ack"] = "handled"
    return fields


def _options_of(fields: Any) -> StreamOptions:
    if type(fields) is not dict:
        raise ProtocolError("the options of a stream are no map")
    group = fields.get("group")
    policy = fields.get("policy", "round_robin")
    overflow = fields.get("overflow")
    ack = fields.get("ack", "received")
    if not (group is None or type(group) is str):
        raise ProtocolError("the group of a stream is no text")
    if policy not in _POLICIES or overflow not in _OVERFLOWS or ack not in ("received", "handled"):
        raise ProtocolError("an option of a stream has an unknown value")
    numbers = fields.get("max_pending", 0), fields.get("prefetch", 0)
    for number in numbers:
        if type(number) is not int or not 0 <= number < 2**32:
            raise ProtocolError("max_pending or prefetch of a stream is out of range")
    redeliver = fields.get("redeliver") is True
    return StreamOptions(group, policy, overflow, numbers[0], ack == "handled", redeliver, numbers[1])


_POLICIES = ("round_robin", "sticky", "failover")
_OVERFLOWS = (None, "drop_newest", "drop_oldest", "conflate")


def _entry_of(item: Item) -> tuple[Any, ...]:
    return item.sid, item.stream, item.dialect, item.text, {"last_value": True} if item.last_value else {}


def _cut_refusal(refusal: Refusal) -> Refusal:
    rule, witness = refusal.rule, refusal.witness
    return Refusal(refusal.sid, refusal.reason[:200], rule and rule[:100], witness and witness[:100])


def _pack_streams(streams: Mapping[int, Drops]) -> bytes:
    if not streams:
        return _EMPTY
    # The last field, `unknown`, is left out if it is 0, because it is rarely used.
    return _pack({stream: entry if entry.unknown else entry[:-1] for stream, entry in streams.items()})


def _streams_of(packed: bytes) -> dict[int, Drops]:
    if packed == _EMPTY:
        return {}
    streams = _unpack(
        packed, len(Drops._fields), _MAX_KEYS, object_hook=_refuse_nested(), list_hook=_check_numbers
    )
    if type(streams) is not dict:
        raise ProtocolError("the drops of streams are no map")
    found = {}
    for stream, numbers in streams.items():
        if type(stream) is not int:
            raise ProtocolError("a stream is no number")
        size = len(Drops._fields)
        if type(numbers) is list and len(numbers) == size - 1:
            size -= 1
        found[stream] = Drops(*_tuple_of(numbers, size))
    return found
