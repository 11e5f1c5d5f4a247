"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["yes", "low", "no", "broken"]
"""There; there, and small; missing, which most can live with; missing or too old, and oz needs it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what it is called, also by `oz doctor --require`.
        group: what it belongs to.
        state: whether it is there.
        value: what was found: a version, a number.
        note: what it is for, or what is wrong.
        add: the exact line that adds it; empty when nothing is missing, or no line can.
    """

    name: str
    group: str
    state: State
    value: str = ""
    note: str = ""
    add: str = ""
