"""On what terms a subscriber wants its messages: checked where they are given."""

from __future__ import annotations

from typing import Any, Literal

from oz.wire.keys import KEEPS, MAX_GROUP, POLICIES, Terms

Filtering = Literal["prefix", "publisher"]
Keep = Literal["all", "latest", "drop_oldest", "drop_newest"]
Policy = Literal["turn", "sticky", "first"]


def check_filtering(filtering: Any, *, shared: bool, on_gap: Any, delimiter: bytes | None) -> bool:
    """Tell whether the publisher is to filter.

    Raises:
        ValueError: no such filtering, or an option that does not go with it.
        TypeError: `on_gap` cannot be called.
    """
    if filtering not in ("prefix", "publisher"):
        raise ValueError(f'filtering is "prefix" or "publisher", not {filtering!r}')
    is_routed = bool(filtering == "publisher")
    if not is_routed and (shared or on_gap is not None):
        raise ValueError('shared and on_gap need filtering="publisher": a plain publisher numbers nothing')
    if is_routed and delimiter is not None:
        raise ValueError('a delimiter is for plain messages; filtering="publisher" needs none')
    if on_gap is not None and not callable(on_gap):
        raise TypeError(f"on_gap is called with each gap; {on_gap!r} cannot be called")
    return is_routed


def check_terms(group: Any, policy: Any, keep: Any, max_waiting: Any, *, shared: bool) -> Terms:
    """Put the terms of a subscription together.

    Raises:
        ValueError: one is out of bounds, or does not go with the others.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy is one of {', '.join(POLICIES)}, not {policy!r}")
    if keep not in KEEPS:
        raise ValueError(f"keep is one of {', '.join(KEEPS)}, not {keep!r}")
    if group is not None and not (isinstance(group, str) and 0 < len(group.encode()) <= MAX_GROUP):
        raise ValueError(f"a queue group has a name of 1 to {MAX_GROUP} bytes, not {group!r}")
    if not 1 <= max_waiting < 2**32:
        raise ValueError(f"max_waiting is 1 or more, not {max_waiting!r}")
    if shared and (group or keep != "all"):
        raise ValueError("a shared subscriber gets what all others get: no group, and keep is all")
    return Terms(shared, group or "", policy if group else "turn", keep, 0 if keep == "all" else max_waiting)
