"""Checks of the arguments of sockets and subscriptions."""

from __future__ import annotations

from typing import Any, Literal

from oz.numbers import check_count
from oz.protocol.conflating import LIMIT
from oz.wire.extras import is_utf8
from oz.wire.keys import MAX_GROUP, OVERFLOWS, POLICIES, DeliveryOptions

Overflow = Literal["drop_newest", "drop_oldest", "conflate"] | None
Policy = Literal["round_robin", "sticky", "failover"]


MOST_PENDING = 2**32 - 1
"""The highest `max_pending`: what a declaration has room for."""

LONGEST_CLOSE = 86_400.0
"""Seconds that stand for waiting as long as it takes: as good as for ever, and ZeroMQ can count them."""


def closing_time(timeout: float | None) -> float:
    """Return the seconds that closing may take, where None is as long as it takes."""
    return LONGEST_CLOSE if timeout is None else min(timeout, LONGEST_CLOSE)


def delivery_options(group: Any, policy: Any, overflow: Any, max_pending: Any) -> DeliveryOptions:
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
        max_pending = LIMIT
    elif overflow is None:
        raise ValueError('max_pending needs overflow="drop_newest", "drop_oldest" or "conflate"')
    check_count("max_pending", max_pending, 1, MOST_PENDING)
    return DeliveryOptions(
        False,
        group or "",
        policy if group else "round_robin",
        overflow,
        0 if overflow is None else max_pending,
    )


def _is_group(name: Any) -> bool:
    return isinstance(name, str) and is_utf8(name) and 0 < len(name.encode()) <= MAX_GROUP
