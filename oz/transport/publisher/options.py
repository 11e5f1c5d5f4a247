"""The options of a publisher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import zmq

from oz.protocol.multicast.options import Multicast
from oz.protocol.publisher.batches import MAX_BATCH
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT
from oz.transport.dropin import refuse_green
from oz.transport.endpoints import Endpoints
from oz.transport.multicast.group import Group, group_for
from oz.transport.option_checks import check_count, check_seconds
from oz.transport.socket import check_delimiter
from oz.wire.batch import MAX_COUNT
from oz.wire.codec import Codec, find_codec

OnFull = Literal["drop", "block", "error"]

LONGEST_TIMEOUT = 2_000_000.0
"""Seconds; ZeroMQ counts milliseconds in 32 bits."""

MAX_DELAY = 0.0005
"""Seconds for which a message waits for others at most, unless said otherwise."""

_KINDS = (zmq.PUB, zmq.XPUB)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """The arguments of `oz.Publisher`, which says what each is.

    Attributes:
        kind: the type of socket that pyzmq asks for, where it makes the publisher.
    """

    bind: Endpoints | None = None
    connect: Endpoints | None = None
    dialect: str = DEFAULT_DIALECT
    context: zmq.Context[Any] | None = None
    codec: str | Codec | None = None
    delimiter: bytes | None = None
    on_full: OnFull = "drop"
    full_timeout: float | None = None
    high_water_mark: int | None = None
    last_value: bool = False
    max_batch: int = MAX_BATCH
    max_delay: float = MAX_DELAY
    multicast: Multicast | None = None
    plain: bool = False
    kind: int | None = None

    def check(self) -> tuple[Codec | None, bytes | None, Group | None]:
        """Check them before anything is made; give the codec, the delimiter and what multicast needs.

        Raises:
            ValueError, TypeError: see `oz.Publisher`.
        """
        if self.on_full not in ("drop", "block", "error"):
            raise ValueError(f'on_full is "drop", "block" or "error", not {self.on_full!r}')
        check_count("max_batch", self.max_batch, 1, MAX_COUNT)
        check_seconds("max_delay", self.max_delay, 1.0)
        if self.full_timeout is not None:
            check_seconds("full_timeout", self.full_timeout, LONGEST_TIMEOUT)
        codec, delimiter = find_codec(self.codec), check_delimiter(self.delimiter)
        ends = (self.bind, self.connect)
        group = group_for(ends, self.multicast, is_plain=self.plain, is_publisher=True)
        if group is not None and (self.last_value or (delimiter and not self.plain)):
            raise ValueError("multicast has no last_value, and a delimiter only with plain=True")
        dialects.find(self.dialect)
        refuse_green(self.context)
        if isinstance(self.kind, int) and self.kind not in _KINDS:
            names = " or ".join(zmq.SocketType(one).name for one in _KINDS)
            raise ValueError(f"Publisher is a {names} socket, not {zmq.SocketType(self.kind).name}")
        return codec, delimiter, group
