"""The examination: every finding, and whether they do for what is needed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from oz.doctor.java import java
from oz.doctor.limits import limits
from oz.doctor.packages import extras, requirements
from oz.doctor.zeromq import zeromq

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


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found.

    Attributes:
        findings: in the order in which they are shown.
    """

    findings: tuple[Finding, ...]

    @property
    def names(self) -> list[str]:
        """The names of all findings."""
        return [one.name for one in self.findings]

    def missing(self, required: Collection[str] = ()) -> list[Finding]:
        """Give what is missing of what oz needs, and of what is required besides.

        Args:
            required: names of findings.
        """
        return [
            one
            for one in self.findings
            if one.state == "broken" or (one.state == "no" and one.name in required)
        ]


def examine() -> Examination:
    """Look at everything; Java is started once, to ask its version."""
    return Examination((*requirements(), *zeromq(), *extras(), java(), *limits()))
