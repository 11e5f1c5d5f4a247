"""Payloads in the forms that ZeroMQ and batches take."""

from __future__ import annotations

from typing import Any

import zmq


def as_item(payload: Any) -> Any:
    """Return the form in which a payload is packed: bytes, or a list of the bytes of several frames."""
    if type(payload) is tuple:
        return [bytes(frame) for frame in payload]
    return payload if type(payload) is bytes else bytes(payload)


def as_sendable(payload: Any) -> Any:
    """Return a payload that ZeroMQ takes: bytes-like, or a tuple of several frames.

    Raises:
        TypeError: it is neither; says what to do.
    """
    if isinstance(payload, (list, tuple)) and payload:
        return tuple(_as_frame(frame) for frame in payload)
    return _as_frame(payload)


def _as_frame(payload: Any) -> Any:
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    if isinstance(payload, (bytes, zmq.Frame)):
        return payload
    raise TypeError(
        f"a payload is bytes, not {type(payload).__name__}: encode it, or give the publisher codec='msgpack'"
    )
