"""The report of a look at a journal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        file: the name of the file, within the journal's directory.
        text: what is wrong, or what was done about it, in words.
        position: the byte in the file where it begins; None when it is the whole file.
        first_offset: the first offset that it costs; None when it costs no record.
        records: how many records it costs, where that can be known.
        cut_bytes: how many bytes were, or would be, cut from the file's end.
    """

    file: str
    text: str
    position: int | None = None
    first_offset: int | None = None
    records: int = 0
    cut_bytes: int = 0

    def __str__(self) -> str:
        """Say it in one line."""
        place = "" if self.position is None else f" at byte {self.position}"
        return f"{self.file}{place}: {self.text}"


@dataclass(frozen=True)
class Report:
    """The findings, and how much was looked at.

    Attributes:
        findings: everything that is not as it should be; empty when all is well.
        segments: how many segments there are.
        records: how many intact records were counted.
        bytes: the size of the segments that were read, in bytes.
    """

    findings: tuple[Finding, ...] = ()
    segments: int = 0
    records: int = 0
    bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings
