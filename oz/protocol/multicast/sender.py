"""Sending what is multicast: frames of their own, which say who sent them and which they are.

Nothing comes back from a subscriber, so that its router has everybody want everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, NoReturn

import msgpack

from oz.protocol.multicast.options import Multicast
from oz.protocol.multicast.plan import usable_kbps
from oz.protocol.prefix_counts import NOTHING, KeyChanges
from oz.protocol.publisher.acceptance import FrameState
from oz.protocol.publisher.accounts import Account
from oz.protocol.publisher.batching import STEP
from oz.protocol.publisher.interest import Recipients
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.sink import Clock, Sink
from oz.protocol.publisher.stream import OutStream
from oz.protocol.stats import PublisherStats
from oz.wire.batch import CONTROL, RICH, Head
from oz.wire.datagram import BATCH, LONGEST_QUIET, OVERHEAD, pack, pack_batch
from oz.wire.keys import DeliveryOptions

BEAT = 0.2
"""Seconds between two records of where the publisher stands."""

FAREWELL = 3.0
"""Seconds for which a publisher that closes stays: packets that were lost last can be sent again."""

_PACKET_OVERHEAD = 1.1
_ITEM_OVERHEAD = 10
"""Bytes that MessagePack takes at most for what surrounds a short subject and payload."""


LEAST_WAITING = 1_000


def high_water_mark_for(options: Multicast) -> int:
    """Return the frames that may wait to be sent, unless said otherwise: what goes in about a second."""
    return max(LEAST_WAITING, options.rate_kbps * 125 // options.mtu)


class MulticastRouter(Router):
    """The interests of the subscribers of a multicast publisher, in which every subject is wanted.

    Attributes:
        stream: the one there is, which stands for all who listen.
    """

    __slots__ = ("stream",)

    def __init__(self, origin: bytes, stats: PublisherStats) -> None:
        """Start; see `Router`."""
        super().__init__(origin, stats)
        self.stream = OutStream(b"", b"", DeliveryOptions(), origin, 0)
        self.streams[b""] = self.stream
        recipients = Recipients(is_plain=False, streams=(self.stream,), choices=())
        self.find = lambda subject, plain: recipients

    def learn(
        self, frame: bytes, now: float, account: Account | None = None, read: FrameState | None = None
    ) -> KeyChanges:
        """Take in a subscription frame: none comes."""
        return NOTHING

    def count(self, subject: bytes | None, plain: bytes | None, known: Recipients | None = None) -> NoReturn:
        """Refuse to count.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a multicast publisher hears nothing from its subscribers, so it cannot count or wait for them; "
            "let them answer on a TCP socket if you must know"
        )


class MulticastDispatch:
    """Sends what is published to all who listen, and tells them where this publisher stands.

    It stands in place of both `Batches` and `Records`. Every message has a number before it is sent; what
    finds no room keeps it, so that it is found missing.

    Attributes:
        full: the one stream there is, while something waits for room, and since when, in monotonic seconds.
        is_blocked: the same holds up the publisher.
        make_lossy: that of the sink, called before a plain message.
        size: bytes of all frames of the last flush: frames are never too large here, but go out together.
        position: counted and never sent: a datagram has a sequence that is the same for all instead.
        beats_at: when to say next where this publisher stands, in monotonic seconds.
        is_halfway: False, as everybody is told at once.
        to: the group and port that messages go to.
    """

    __slots__ = (
        "_began_at",
        "_busy_until",
        "_bytes_per_second",
        "_bytes_per_second_at_least",
        "_clock",
        "_drops_all",
        "_epoch",
        "_most",
        "_origin",
        "_rate",
        "_sequence",
        "_sink",
        "_stats",
        "_stream",
        "_unsent",
        "beats_at",
        "full",
        "is_blocked",
        "is_halfway",
        "make_lossy",
        "position",
        "size",
        "to",
    )

    def __init__(
        self,
        router: MulticastRouter,
        origin: bytes,
        options: Multicast,
        sink: Sink,
        clock: Clock,
        *,
        epoch: int,
        drops: bool,
    ) -> None:
        """Start with nothing to send.

        Args:
            router: has the counters.
            origin: 16 bytes that name this publisher.
            options: how it sends.
            sink: takes the frames.
            clock: what time it is.
            epoch: the epoch of its sequence, later than that of any publisher it goes on for.
            drops: whether what finds no room is dropped; otherwise it holds up the publisher.
        """
        self._sink = sink
        # Bound, as each plain message calls it.
        self.make_lossy = sink.make_lossy
        self._clock = clock
        self._stream = router.stream
        self._origin = origin
        self._epoch = epoch
        self._stats = router.stats
        self._drops_all = drops
        self._rate = options.rate_kbps
        self._bytes_per_second = options.rate_kbps * 125
        self._bytes_per_second_at_least = usable_kbps(options.rate_kbps, options.mtu) * 125
        # Within one packet, behind the headers of IP, UDP and PGM.
        self._most = options.mtu - 100 - OVERHEAD
        self._sequence = 0
        self._began_at: float | None = None
        self._busy_until = 0.0
        self._unsent: deque[bytes] = deque()
        self.full: dict[OutStream, float] = {}
        self.is_blocked = False
        self.size = self.position = 0
        self.beats_at = 0.0
        self.is_halfway = False
        self.to = ""

    # messages --------------------------------------------------------------------------------------------

    def send(self, accumulated: list[Any], first: int, *, is_rich: bool) -> None:
        """Send what was published, in as few frames as packets can hold; see `Batches.send`."""
        subjects, payloads = accumulated[1::STEP], accumulated[2::STEP]
        self.size = start = size = 0
        for place, payload in enumerate(payloads):
            more = len(subjects[place]) + _ITEM_OVERHEAD
            more += len(payload) if type(payload) is bytes else self._most
            if size and size + more > self._most:
                self._send_some(subjects[start:place], payloads[start:place])
                start, size = place, 0
            size += more
        self._send_some(subjects[start:], payloads[start:])

    def send_alone(self, recipients: Recipients, subject: bytes, payload: Any) -> None:
        """Send one message."""
        self._send_some([subject], [payload])

    def send_large(self, accumulated: list[Any]) -> None:
        """Send one message whose payload is large; PGM cuts it into packets."""
        self._send_some(accumulated[1:2], accumulated[2:3])

    def _send_some(self, subjects: list[bytes], payloads: list[Any]) -> None:
        """Send some messages in one frame."""
        count = len(subjects)
        if self._began_at is None:
            self._began_at = self._clock()
        sequence = self._sequence
        # Before anything can be cut short: a number that nothing was sent under is found missing.
        self._sequence = sequence + count
        if count == 1 and type(payloads[0]) is bytes and 0 not in subjects[0]:
            prefix, body, flags = subjects[0], payloads[0], 0
        else:
            is_rich = any(type(payload) is not bytes for payload in payloads)
            prefix, body = pack_batch(subjects, payloads)
            flags = BATCH | RICH if is_rich else BATCH
        frame = pack(prefix, Head(flags, self._origin, self._epoch, sequence, count), body)
        self.size += len(frame)
        quiet = _PACKET_OVERHEAD * len(frame) / self._bytes_per_second_at_least
        if quiet > BEAT:
            self._announce(sequence, quiet)
        if not self._unsent and self._fits(frame):
            return
        if self._drops_all:
            self._stats.missed += count
            return
        self._unsent.append(frame)
        self.full.setdefault(self._stream, self._clock())
        self.is_blocked = True

    def _announce(self, sequence: int, quiet: float) -> None:
        """Say that the next message takes so many seconds: no record can overtake it on the way."""
        record = self._record(sequence, quiet=min(quiet, LONGEST_QUIET))
        if (self._unsent or not self._fits(record)) and not self._drops_all:
            self._unsent.append(record)

    def _fits(self, frame: bytes) -> bool:
        """Send a frame, if there is room."""
        if not self._sink.try_send_one(frame):
            return False
        seconds = _PACKET_OVERHEAD * len(frame) / self._bytes_per_second
        self._busy_until = max(self._busy_until, self._clock()) + seconds
        return True

    def retry(self) -> None:
        """Send what waits for room, as far as there is some."""
        while self._unsent and self._fits(self._unsent[0]):
            self._unsent.popleft()
        if not self._unsent:
            self.full.clear()
            self.is_blocked = False

    def skip(self, count: int | None, recipients: Recipients | None = None) -> None:
        """Count messages that were lost before they came here, as everybody gets all; see `Batches.skip`."""
        if self._began_at is None:
            self._began_at = self._clock()
        if count is None:
            self._epoch += 1
        else:
            self._sequence += count

    def resume(self, origin: bytes, epoch: int, sequence: int, age: float) -> None:
        """Go on for a publisher that has ended, before anything was sent here.

        Args:
            origin: what named it.
            epoch: its epoch.
            sequence: the number of the next message.
            age: seconds since it sent its first message.
        """
        self._origin = origin
        self._epoch = epoch
        self._sequence = sequence
        if sequence:
            self._began_at = self._clock() - age

    def lose_count(self) -> None:
        """Count anew: of what was being sent when that was cut short, some may have no number yet."""
        self._epoch += 1

    # records ---------------------------------------------------------------------------------------------

    def answer(self) -> None:
        """Called when a subscriber asked for something: none can."""

    def greet(self, groups: Iterable[str]) -> None:
        """Record the group and port that messages go to, and say that there is a publisher."""
        self.to = next(iter(groups), "")
        self.beats_at = 0.0
        self.beat(self._clock())

    def beat(self, now: float) -> None:
        """Say where this publisher stands, when that is due."""
        if now >= self.beats_at and self.to:
            self.beats_at = now + BEAT
            self._say(now)

    def next_deadline(self, now: float) -> float | None:
        """Say when this publisher says next where it stands; see `Records.next_deadline`."""
        return self.beats_at if self.to else None

    def say_goodbye(self) -> bool:
        """Say that nothing more comes; `farewell` says it again and again."""
        if self.to:
            self._say(self._clock(), bye=True)
        return True

    def _say(self, now: float, **more: Any) -> None:
        # Behind what waits, which is not lost.
        if not self._unsent:
            self._fits(self._record(self._sequence, now, **more))

    def _record(self, sequence: int, now: float | None = None, **more: Any) -> bytes:
        """Make a record that stands before the message of this number."""
        age = 0.0
        if self._began_at is not None:
            # As old as it will be when what ZeroMQ still has to send has gone.
            age = max(now or self._clock(), self._busy_until) - self._began_at
        body = msgpack.packb({"to": self.to, "rate": self._rate, "age": age, **more})
        return pack(b"", Head(CONTROL, self._origin, self._epoch, sequence, 0), body)

    def farewell(self, deadline: float) -> Iterator[float]:
        """Stay until all has gone and been heard, and say goodbye again and again; give the time to wait."""
        ends = max(self._clock(), self._busy_until) + FAREWELL if self.to else -inf
        while (now := self._clock()) < min(ends, deadline):
            self._say(now, bye=True)
            yield min(BEAT, max(0.0, deadline - now))
