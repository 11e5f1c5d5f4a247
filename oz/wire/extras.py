"""Extras of a message: optional fields in addition to subject and payload. The page docs/wire.md describes them.

`FIELDS` is the table of all fields, with their names, their keys on the wire, and their checks. A new field needs a
line in this table, a line in `oz.message.Extras`, and an argument of `publish`. Most messages with extras have only one
field. Therefore the code does only one comparison with None for each absent field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oz.errors import ProtocolError
from oz.message import Extras, Forwarded

VIA = "oz-via"
"""Name of the header that lists the ids of the forwarders that a message has passed."""

REPLY_TO = "reply_to"

FORWARDED, TO_ALL, REDELIVERED = "forwarded", "to_all", "redelivered"

FORWARDER_ID = 6
"""Size in bytes of a forwarder's id."""

MAX_FORWARDERS = 15
"""Maximum number of forwarders that a message may pass."""

MAX_ID = 64
"""Maximum size in bytes of a message id. If the id is a pair of bytes and a number, the limit applies to the bytes."""

# `_new(Extras, values)` takes half the time of `Extras(*values)`.
_new = tuple.__new__

_SCALARS = frozenset({str, bytes, int, float, bool, type(None)})
# Types of values that need no further check, because every value of these types can be encoded.
_SURE = frozenset({bytes, float, bool, type(None)})


class Field(NamedTuple):
    """One field of `Extras`.

    Attributes:
        name: name of the field in `Extras`.
        key: key of the field in the map on the wire; None for a field that is not sent.
        give: function that checks an argument of `publish`. It returns the value to send, or None to send nothing. For
            a wrong argument it raises TypeError or ValueError.
        take: function that checks a received value. It returns the value for `Message`, or raises ProtocolError.
    """

    name: str
    key: str | None
    give: Callable[[Any], Any]
    take: Callable[[Any], Any]


def check_extras(extras: Extras) -> dict[str, Any]:
    """Check the optional arguments of `publish`, and return them as the map to send.

    Raises:
        TypeError: headers are not a dict, a header has a name or a value of a wrong type, or the key is neither text
            nor bytes.
        ValueError: a header, the id or the key cannot be encoded.
    """
    if extras.count(None) == _ALL_BUT_ONE and (reply_to := extras.reply_to) is not None:
        # Nearly all requests have only this field.
        return {REPLY_TO: reply_to}
    found: dict[str, Any] = {}
    place = 0
    # With `enumerate`, an absent field would take twice as long.
    for value in extras:
        if value is not None:
            given = _GIVE[place](value)
            if given is not None and (key := _KEYS[place]) is not None:
                found[key] = given
        place += 1  # noqa: SIM113
    return found


def encode_extras(extras: Extras) -> dict[str, Any]:
    """Return the map to send for the extras of a message that a forwarder passes on."""
    found = {}
    for place, value in enumerate(extras):
        if value is not None and (key := _KEYS[place]) is not None:
            found[key] = value
    return found


def decode_extras(found: Any) -> Extras:
    """Return the extras of a received map. Unknown keys are ignored.

    Raises:
        ProtocolError: `found` is not a map, or a field has a wrong value.
    """
    if type(found) is not dict:
        raise ProtocolError("the extras of a message are no map")
    if len(found) == 1 and type(reply_to := found.get(REPLY_TO)) is str:
        # Nearly all requests have only this field.
        return Extras(None, reply_to)
    values = _NOTHING.copy()
    for key, value in found.items():
        known = _PLACES.get(key)
        if known is not None:
            place, take = known
            values[place] = take(value)
    return _new(Extras, values)


def is_utf8(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8. The result is False for a text with lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sticky_bytes(key: str | bytes) -> bytes:
    """Return a key as bytes. Text is encoded like a subject; raise UnicodeError if it cannot be encoded."""
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key


def _as_it_is(value: Any) -> Any:
    return value


def _give_headers(headers: Any) -> dict[str, Any] | None:
    if not isinstance(headers, dict):
        raise TypeError(f"headers are a dict, not {type(headers).__name__}: {headers!r}")
    for name, value in headers.items():
        # Check the common cases first, because this code runs for each header of each message.
        kind = type(value)
        if type(name) is str and name.isascii():
            if kind in _SURE or (kind is str and value.isascii()):
                continue
            if kind is int and -(2**63) <= value < 2**64:
                continue
        _check_header(name, value)
    # Remove `VIA`: a program may publish headers that it has received, but the new message has passed no forwarder.
    own = dict(headers)
    own.pop(VIA, None)
    return own or None


def _check_header(name: Any, value: Any) -> None:
    if not isinstance(name, str) or not (value is None or isinstance(value, (str, bytes, int, float, bool))):
        raise TypeError(
            f"a header is text and its value text, bytes, a number or None, not {name!r}: {value!r}"
        )
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"header {name!r} is a number of more than 64 bits: {value}")
    if not is_utf8(name) or (isinstance(value, str) and not is_utf8(value)):
        raise ValueError(f"header {name!r} holds text that is not UTF-8: {value!r}")


def _take_headers(headers: Any) -> dict[str, Any]:
    if type(headers) is not dict:
        raise ProtocolError("headers are no map")
    for name, value in headers.items():
        if type(name) is not str or type(value) not in _SCALARS:
            raise ProtocolError("headers are not a map of text to scalars")
    return headers


def _take_reply_to(reply_to: Any) -> str | None:
    if not (reply_to is None or type(reply_to) is str):
        raise ProtocolError("reply_to is not text")
    return reply_to


def _give_id(message_id: Any) -> bytes | tuple[bytes, int]:
    try:
        return _take_id(message_id)
    except ProtocolError as error:
        raise ValueError(str(error)) from None


def _take_id(message_id: Any) -> bytes | tuple[bytes, int]:
    """Check the id of a message, and return it: bytes, or a pair of bytes (the series) and a number."""
    series, number = message_id, 0
    if type(message_id) in (list, tuple):
        if len(message_id) != 2:
            raise ProtocolError(f"a message id is a series and a number, not {len(message_id)} values")
        series, number = message_id
    if type(series) is not bytes or not 0 < len(series) <= MAX_ID:
        raise ProtocolError(f"a message id, or its series, is 1 to {MAX_ID} bytes, not {series!r}")
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise ProtocolError(f"the number of a message id is from 0 to 2**63 - 1, not {number!r}")
    return series if message_id is series else (series, number)


def _take_forwarded(found: Any) -> Forwarded:
    if type(found) not in (list, tuple) or len(found) != 3:
        raise ProtocolError("the source of a forwarded message is no array of 3 values")
    origin, position, via = found
    if type(origin) is not bytes or len(origin) != 16:
        raise ProtocolError("the origin of a forwarded message does not have 16 bytes")
    if type(position) is not int or not 0 <= position < 1 << 64:
        raise ProtocolError("the position of a forwarded message is out of range")
    if type(via) is not bytes or len(via) % FORWARDER_ID or len(via) > FORWARDER_ID * MAX_FORWARDERS:
        raise ProtocolError("the ids of forwarders have a wrong length")
    return Forwarded(origin, position, via)


def _take_flag(found: Any) -> bool | None:
    if found is not True and found is not None:
        raise ProtocolError("a flag of the extras is not true")
    return found


def _give_key(key: Any) -> None:
    """Check the argument `key`. Return None, because the key is not sent."""
    if isinstance(key, str):
        # Keys are encoded like subjects, because many keys are subjects.
        if not key.isascii():
            try:
                sticky_bytes(key)
            except UnicodeEncodeError:
                raise ValueError(f"a key is text with a UTF-8 form, or bytes, not {key!r}") from None
    elif not isinstance(key, bytes):
        raise TypeError(f"a key is str or bytes, not {type(key).__name__}: {key!r}")


FIELDS = (
    Field("headers", "headers", _give_headers, _take_headers),
    Field("reply_to", REPLY_TO, _as_it_is, _take_reply_to),
    Field("message_id", "id", _give_id, _take_id),
    Field("key", None, _give_key, _as_it_is),
    Field("forwarded", FORWARDED, _as_it_is, _take_forwarded),
    Field("to_all", TO_ALL, _as_it_is, _take_flag),
    Field("redelivered", REDELIVERED, _as_it_is, _take_flag),
)
"""All fields, in the order of `Extras`."""

_GIVE = [field.give for field in FIELDS]
_KEYS = [field.key for field in FIELDS]
_PLACES = {field.key: (place, field.take) for place, field in enumerate(FIELDS) if field.key is not None}
_NOTHING: list[Any] = [None] * len(FIELDS)
_ALL_BUT_ONE = len(FIELDS) - 1
