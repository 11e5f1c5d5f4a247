"""The report that `Journal.verify` and `Journal.repair` return."""

from __future__ import annotations

from dataclasses import dataclass

from oz.journal.format import fault_text


@dataclass(frozen=True)
class Finding:
    """One fault of a journal.

    Attributes:
        file: the name of the file; empty if records between two files are missing.
        reason: the description of the fault, or of its repair.
        first: the first lost offset; None if no record is lost.
        end: the offset after the last lost record; None if no record is lost.
        position: the position in the file at which the fault begins, in bytes; None if the whole file has the fault.
    """

    file: str
    reason: str
    first: int | None = None
    end: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        """Return the finding as one line of text."""
        place = fault_text(self.file, self.first, self.end, self.position)
        return f"{place}: {self.reason}" if place else self.reason


@dataclass(frozen=True)
class Report:
    """The faults of a journal, and the amount of data that was checked.

    Attributes:
        findings: the faults, sorted by offset; empty if the journal is intact.
        segments: the number of checked segments.
        records: the number of intact records.
        bytes: the total size of the checked files in bytes.
    """

    findings: tuple[Finding, ...] = ()
    segments: int = 0
    records: int = 0
    bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether the journal is intact."""
        return not self.findings
