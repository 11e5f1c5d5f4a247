"""State with which the compiled part receives lone messages: frames with a single message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Lone:
    """Parts of a subscriber with one link and one stream that the delivery of a lone message needs.

    Attributes:
        link: link over which the frames arrive.
        place: state of the endpoint to which the link connects.
        handle: handle of the link's connection.
        raw: access to the socket in C.
        message: frames that were read but not passed to the link; see `Dialler.read`.
        routes: cached receivers of messages, by subject; see `Routes`.
        cache: cache of the compiled part in front of `routes`.
        find: function that finds the receivers of a subject that is not cached.
        stream: number of the stream.
        drops: number of dropped messages that the publisher has reported for the stream.
        descriptor: descriptor of the socket.
    """

    link: Any
    place: Any
    handle: bytes
    raw: Any
    message: list[bytes]
    routes: dict[bytes, Any]
    cache: Any
    find: Callable[..., Any]
    stream: int
    drops: int
    descriptor: int
