"""Positions: the number of each message among all of its publisher; docs/wire.md has their layout.

The head of a batch has the position of its first message. Where the others do not follow one by one, the
differences stand behind the head, each as wide as the widest.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, islice
from operator import sub

from oz.errors import ProtocolError

LAST_POSITION = (1 << 64) - 1
"""The largest position that there may be."""

_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


def check_positions(position: int, width: int, count: int) -> None:
    """Refuse what no publisher says of the positions of a batch.

    Args:
        position: of the first message.
        width: bytes of each difference; 0 for none.
        count: the messages.

    Raises:
        ProtocolError: there is no such width, or none for so few messages, or a position is too large.
    """
    if width and (width not in _CODES or count < 2):
        raise ProtocolError(f"a batch of {count} messages with differences of {width} bytes")
    if not width and position + count - 1 > LAST_POSITION:
        raise ProtocolError(f"a batch of {count} messages from position {position}")


def pack_differences(positions: Sequence[int]) -> tuple[int, bytes]:
    """Return the width of the differences of positions, and their bytes; 0 and none where all are 1."""
    if type(positions) is range or len(positions) == 1:
        return 0, b""
    steps = list(map(sub, islice(positions, 1, None), positions))
    if steps.count(1) == len(steps):
        return 0, b""
    for width, code in _CODES.items():
        try:
            return width, _swapped(array(code, steps)).tobytes()
        except OverflowError:
            continue
    raise ValueError("positions that are too far from each other")


def parse_positions(frame: bytes, at: int, position: int, width: int, count: int) -> Sequence[int]:
    """Read the positions of the messages of a batch.

    Args:
        frame: what the differences stand in.
        at: where they begin.
        position: of the first message.
        width: bytes of each difference; 0 for none.
        count: the messages.

    Raises:
        ProtocolError: the differences are cut short, or lead to what is no position.
    """
    if not width:
        return range(position, position + count)
    steps, size = array(_CODES[width]), width * (count - 1)
    if len(frame) < at + size:
        raise ProtocolError("the positions of a batch are cut short")
    steps.frombytes(frame[at : at + size])
    positions = list(accumulate(_swapped(steps), initial=position))
    if min(positions) < 0 or max(positions) > LAST_POSITION:
        raise ProtocolError("the differences of a batch lead to what is no position")
    return positions


def _swapped(steps: array[int]) -> array[int]:
    """Turn differences from the order of bytes of this machine to that of the wire, or back."""
    if sys.byteorder == "little":
        steps.byteswap()
    return steps
