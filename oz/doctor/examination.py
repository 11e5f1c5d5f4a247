"""The examination: every finding, and whether they do for what is needed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from oz.doctor.finding import Finding
from oz.doctor.java import java
from oz.doctor.limits import limits
from oz.doctor.packages import extras, requirements
from oz.doctor.zeromq import zeromq


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings.

    Attributes:
        findings: in the order in which they are shown.
    """

    findings: tuple[Finding, ...]

    @property
    def names(self) -> list[str]:
        """The names of all findings."""
        return [one.name for one in self.findings]

    def missing(self, required: Collection[str] = ()) -> list[Finding]:
        """Return what is missing of what oz needs, and of what is required besides.

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
