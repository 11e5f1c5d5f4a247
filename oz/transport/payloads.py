"""Payloads and what goes with them, in the forms that ZeroMQ and batches take."""

from __future__ import annotations

from typing import Any

import zmq

from oz.errors import ProtocolError
from oz.protocol.bridge.bridge import VIA
from oz.wire.batch import HEADERS, MESSAGE_ID, REPLY_TO, check_id


def extras_of(
    headers: dict[str, Any] | None,
    message_id: bytes | tuple[bytes, int] | None = None,
    reply_to: str | None = None,
) -> dict[str, Any]:
    """Put the extras of a message together, with its headers but for the one that forwarders write.

    Raises:
        TypeError: headers are not a dict of text to text, bytes, numbers, truth values or None.
        ValueError: a header or the id has no form on the wire.
    """
    extras: dict[str, Any] = {}
    if headers is not None and not isinstance(headers, dict):
        raise TypeError(f"headers are a dict, not {type(headers).__name__}: {headers!r}")
    if headers:
        for name, value in headers.items():
            if not isinstance(name, str) or not (
                value is None or isinstance(value, (str, bytes, int, float, bool))
            ):
                raise TypeError(
                    f"a header is text and its value text, bytes, a number or None, not {name!r}: {value!r}"
                )
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                raise ValueError(f"header {name!r} is a number of more than 64 bits: {value}")
            if not is_utf8(name) or (isinstance(value, str) and not is_utf8(value)):
                raise ValueError(f"header {name!r} holds text that is not UTF-8: {value!r}")
        own = dict(headers)
        # Whoever sends on what came, or replies with it, makes a message that has passed no forwarder yet.
        own.pop(VIA, None)
        if own:
            extras[HEADERS] = own
    if message_id is not None:
        try:
            check_id(message_id)
        except ProtocolError as error:
            raise ValueError(str(error)) from None
        extras[MESSAGE_ID] = message_id
    if reply_to is not None:
        extras[REPLY_TO] = reply_to
    return extras


def as_key(key: str | bytes | None) -> bytes | None:
    """Return the key of a message as bytes.

    Raises:
        TypeError, ValueError: it is neither text with a UTF-8 form nor bytes.
    """
    if isinstance(key, str):
        try:
            # As subjects, which keys often are.
            return key.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"a key is text with a UTF-8 form, or bytes, not {key!r}") from None
    if not (key is None or isinstance(key, bytes)):
        raise TypeError(f"a key is str or bytes, not {type(key).__name__}: {key!r}")
    return key


def is_utf8(text: str) -> bool:
    """Tell whether text has a UTF-8 form; with lone surrogates it has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
