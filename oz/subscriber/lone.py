"""State of the compiled part that receives lone messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Lone:
    """Parts of a subscriber with one link, whose frames with one message of one stream need no more than these.

    Attributes:
        link: over which the frames arrive.
        place: of the link.
        handle: of its connection.
        raw: C access to the socket.
        message: frames that were read and not passed to the link; see `Dialler.read`.
        routes: of the stream, by subject.
        cache: of the compiled part, in front of the routes.
        find: finds other routes.
        stream: number.
        drops: of the stream, as reported.
        descriptor: of the socket.
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
