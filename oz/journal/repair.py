"""Repairing a journal: what is intact stays at its offset, and what is lost is marked as lost."""

from __future__ import annotations

from pathlib import Path

from oz.journal import files
from oz.journal.files import Segment
from oz.journal.lock import WriterLock
from oz.journal.manifest import Manifest
from oz.journal.mark import AcknowledgedMark, Growing
from oz.journal.recovery import recover
from oz.journal.report import Finding, Report
from oz.journal.sealing import seal
from oz.journal.tail import keep_damaged, opened
from oz.journal.verify import look_at


def repair(directory: Path) -> Report:
    """Put a journal in order.

    Returns:
        What was found and done.

    Raises:
        JournalError: a writer is at work, or the journal is of a newer version.
    """
    lock = WriterLock(directory)
    try:
        state = recover(directory)
        findings = [*state.findings]
        records = size = 0
        present = files.segments(directory)
        for segment, following in zip(present, [*present[1:], None], strict=False):
            end = following.base if following else state.end_offset
            found = look_at(directory, segment, end, state.manifest)
            if found.findings and segment.is_sealed:
                findings += found.findings
                findings.append(_rewrite(directory, segment, end, state.manifest))
            records += found.records
            size += found.bytes
        state.manifest.save(directory)
        epoch = state.history.present
        mark = AcknowledgedMark(directory)
        base = present[-1].base if present else state.end_offset
        mark.set(state.end_offset, Growing(state.manifest.journal, *epoch, base))
        mark.close()
    finally:
        lock.release()
    return Report(tuple(findings), len(present), records, size)


def _rewrite(directory: Path, segment: Segment, end: int, manifest: Manifest) -> Finding:
    kept = keep_damaged(directory, segment)
    with opened(directory, segment, manifest.journal) as source:
        entry, _ = seal(directory, source, end)
    manifest.entries[segment.base] = entry
    return Finding(segment.name, f"written anew; as it was it is {kept}")
