"""State that C code needs to receive lone messages. A lone message is the only message in its frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Lone:
    """Objects and numbers that C code uses to deliver a lone message. The subscriber must have one link and one stream.

    Attributes:
        link: link over which the frames arrive.
        place: state of the endpoint to which the link connects.
        handle: handle of the link's connection.
        raw: object that lets C code use the socket.
        message: the list `Dialler.kept`: frames that were read but not processed.
        routes: dict from subjects to the cached receivers of their messages; see `Routes`.
        cache: smaller cache that C code checks before `routes`.
        find: function that returns the receivers of a subject that is not cached.
        stream: number of the stream.
        drops: number of dropped messages that the publisher has reported for the stream.
        descriptor: file descriptor of the socket.
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
