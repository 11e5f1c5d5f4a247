"""Checks of the arguments of sockets and subscriptions."""

from __future__ import annotations

from typing import Any, Literal

from oz.numbers import check_count
from oz.protocol.subscriber import receive_buffer
from oz.wire.extras import is_utf8
from oz.wire.keys import MAX_GROUP, OVERFLOWS, POLICIES, DeliveryOptions

Filtering = Literal["prefix", "publisher"]
Overflow = Literal["drop_newest", "drop_oldest", "conflate"] | None
Policy = Literal["round_robin", "sticky", "failover"]


MOST_PENDING = 2**32 - 1
"""The highest `max_pending`: what a declaration has room for."""

LONGEST_CLOSE = 86_400.0
"""Seconds that stand for waiting as long as it takes: as good as for ever, and ZeroMQ can count them."""


def closing_time(timeout: float | None) -> float:
    """Return the seconds that closing may take, where None is as long as it takes."""
    return LONGEST_CLOSE if timeout is None else min(timeout, LONGEST_CLOSE)


def check_multicast(filtering: Any, *, shared: bool, on_gap: Any, delimiter: bytes | None) -> None:
    """Refuse what multicast cannot do.

    Raises:
        ValueError: it is that.
        TypeError: `on_gap` cannot be called.
    """
    if filtering != "prefix" or shared:
        raise ValueError(
            'multicast has no way back to the publisher: filtering="publisher" and shared do not go with it'
        )
    if delimiter is not None:
        raise ValueError("a delimiter is for plain messages; with multicast that needs plain=True")
    _check_called("on_gap", on_gap)


def check_advisory(on_advisory: Any, *, is_framed: bool, is_plain: bool) -> None:
    """Refuse a callback that would never be called, or cannot.

    Raises:
        ValueError: the socket is not one of multicast, or a plain one.
        TypeError: it cannot be called.
    """
    if on_advisory is not None and is_plain:
        raise ValueError("on_advisory does not go with plain=True: plain messages do not tell what is wrong")
    if on_advisory is not None and not is_framed:
        raise ValueError(
            "on_advisory tells of multicast publishers, and this socket has none: it needs "
            'multicast=oz.Multicast(…); with filtering="publisher" losses are told to on_gap'
        )
    _check_called("on_advisory", on_advisory)


def _check_called(name: str, callback: Any) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"{name} is called by the subscriber; {callback!r} cannot be called")


def check_filtering(
    filtering: Any, *, shared: bool, dedupe: bool, on_gap: Any, delimiter: bytes | None
) -> bool:
    """Tell whether the publisher is to filter.

    Raises:
        ValueError: no such filtering, or an option that does not go with it.
        TypeError: `on_gap` cannot be called.
    """
    if filtering not in ("prefix", "publisher"):
        raise ValueError(f'filtering is "prefix" or "publisher", not {filtering!r}')
    is_routed = bool(filtering == "publisher")
    if not is_routed and (shared or dedupe or on_gap is not None):
        raise ValueError(
            'shared, dedupe and on_gap need filtering="publisher": '
            "a plain publisher gives messages no number and no id"
        )
    if is_routed and delimiter is not None:
        raise ValueError('a delimiter is for plain messages; filtering="publisher" needs none')
    if on_gap is not None and not callable(on_gap):
        raise TypeError(f"on_gap is called with each gap; {on_gap!r} cannot be called")
    return is_routed


def delivery_options(
    group: Any, policy: Any, overflow: Any, max_pending: Any, *, shared: bool
) -> DeliveryOptions:
    """Put the delivery options of a subscription together.

    Raises:
        ValueError: one is out of bounds, or does not go with the others.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy is one of {', '.join(POLICIES)}, not {policy!r}")
    if overflow not in OVERFLOWS:
        raise ValueError(f"overflow is None or one of {', '.join(filter(None, OVERFLOWS))}, not {overflow!r}")
    if group is not None and not _is_group(group):
        raise ValueError(f"a queue group has a name of 1 to {MAX_GROUP} bytes of UTF-8, not {group!r}")
    if policy != "round_robin" and not group:
        raise ValueError(f"policy={policy!r} is for members of a group; give group= too")
    if max_pending is None:
        max_pending = receive_buffer.LIMIT
    elif overflow is None:
        raise ValueError('max_pending needs overflow="drop_newest", "drop_oldest" or "conflate"')
    check_count("max_pending", max_pending, 1, MOST_PENDING)
    if shared and (group or overflow is not None):
        raise ValueError("a shared subscriber gets what all others get: no group and no overflow")
    return DeliveryOptions(
        shared,
        group or "",
        policy if group else "round_robin",
        overflow,
        0 if overflow is None else max_pending,
    )


def _is_group(name: Any) -> bool:
    return isinstance(name, str) and is_utf8(name) and 0 < len(name.encode()) <= MAX_GROUP
