"""The extras of a message: what it may have beside subject and payload; docs/wire.md has their layout.

`FIELDS` is the one table of them: what each is called, where it stands on the wire, and what may be in it. A
further one is a line here, a line of `oz.message.Extras`, and an argument of `publish`. Most messages
that have any have one: all that is done for an absent field is one look at None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oz.errors import ProtocolError
from oz.message import Extras, Forwarded

VIA = "oz-via"
"""The header by which a message tells which forwarders it has passed: 8 bytes for each."""

REPLY_TO = "reply_to"

FORWARDED, TO_ALL, REDELIVERED = "forwarded", "to_all", "redelivered"

FORWARDER_ID = 6
"""Bytes of the id of a forwarder."""

MAX_FORWARDERS = 15
"""Forwarders that a message passes at most."""

MAX_ID = 64
"""Bytes of a message's id, or of the series that it is a number of."""

# Half the price of calling the class, for each message that has any.
_new = tuple.__new__

_SCALARS = frozenset({str, bytes, int, float, bool, type(None)})
# What is in these has a form on the wire whatever it is.
_SURE = frozenset({bytes, float, bool, type(None)})


class Field(NamedTuple):
    """One field of `Extras`.

    Attributes:
        name: in `Extras`.
        key: in the map on the wire; None for what stays with the publisher.
        give: called with what was given to `publish`, returns what goes out, or None for nothing; raises
            TypeError or ValueError.
        take: called with what has come, returns what `Message` shows; raises ProtocolError.
    """

    name: str
    key: str | None
    give: Callable[[Any], Any]
    take: Callable[[Any], Any]


def check_extras(extras: Extras) -> dict[str, Any]:
    """Return the map that stands on the wire for extras as they were given to `publish`.

    Raises:
        TypeError: headers are not a dict of text to text, bytes, numbers, truth values or None; or the key is
            neither text nor bytes.
        ValueError: a header, the id or the key has no form on the wire.
    """
    if extras.count(None) == _ALL_BUT_ONE and (reply_to := extras.reply_to) is not None:
        # A request, which is nearly always this alone.
        return {REPLY_TO: reply_to}
    found: dict[str, Any] = {}
    place = 0
    # Not by `enumerate`, which costs as much again for each that is absent.
    for value in extras:
        if value is not None:
            given = _GIVE[place](value)
            if given is not None and (key := _KEYS[place]) is not None:
                found[key] = given
        place += 1  # noqa: SIM113
    return found


def encode_extras(extras: Extras) -> dict[str, Any]:
    """Return the map that stands on the wire for extras as they came, which are passed on."""
    found = {}
    for place, value in enumerate(extras):
        if value is not None and (key := _KEYS[place]) is not None:
            found[key] = value
    return found


def decode_extras(found: Any) -> Extras:
    """Read the map that stands for extras on the wire; what is not known here is passed over.

    Raises:
        ProtocolError: it is no map, or a field has no form that it may have.
    """
    if type(found) is not dict:
        raise ProtocolError("the extras of a message are no map")
    if len(found) == 1 and type(reply_to := found.get(REPLY_TO)) is str:
        # A request, which is nearly always this alone.
        return Extras(None, reply_to)
    values = _NOTHING.copy()
    for key, value in found.items():
        known = _PLACES.get(key)
        if known is not None:
            place, take = known
            values[place] = take(value)
    return _new(Extras, values)


def is_utf8(text: str) -> bool:
    """Tell whether text has a UTF-8 form; with lone surrogates it has none."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sticky_bytes(key: str | bytes) -> bytes:
    """Return the bytes that a key stands for, as those of a subject; text that has none is a UnicodeError."""
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key


def _as_it_is(value: Any) -> Any:
    return value


def _give_headers(headers: Any) -> dict[str, Any] | None:
    if not isinstance(headers, dict):
        raise TypeError(f"headers are a dict, not {type(headers).__name__}: {headers!r}")
    for name, value in headers.items():
        # The common cases by themselves, as this is done for each header of each message.
        kind = type(value)
        if type(name) is str and name.isascii():
            if kind in _SURE or (kind is str and value.isascii()):
                continue
            if kind is int and -(2**63) <= value < 2**64:
                continue
        _check_header(name, value)
    # Whoever sends on what came, or replies with it, makes a message that has passed no forwarder yet.
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
        raise ProtocolError("what to reply to is not text")
    return reply_to


def _give_id(message_id: Any) -> bytes | tuple[bytes, int]:
    try:
        return _take_id(message_id)
    except ProtocolError as error:
        raise ValueError(str(error)) from None


def _take_id(message_id: Any) -> bytes | tuple[bytes, int]:
    """Return the id of a message: bytes, or a series, which is bytes too, and a number in it."""
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
    """Check a key, of which nothing goes out."""
    if isinstance(key, str):
        # As subjects, which keys often are.
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
"""All that a message may have beside subject and payload, in the order of `Extras`."""

_GIVE = [field.give for field in FIELDS]
_KEYS = [field.key for field in FIELDS]
_TAKE = [field.take for field in FIELDS]
_PLACES = {field.key: (place, field.take) for place, field in enumerate(FIELDS) if field.key is not None}
_NOTHING: list[Any] = [None] * len(FIELDS)
_ALL_BUT_ONE = len(FIELDS) - 1
