"""Repairing a journal: what is intact stays at its offset, and what is lost is marked as lost."""

from __future__ import annotations

import os
from pathlib import Path

from oz.journal import files
from oz.journal.files import Segment
from oz.journal.lock import WriterLock
from oz.journal.manifest import Manifest
from oz.journal.mark import AcknowledgedMark
from oz.journal.recovery import opened, recover
from oz.journal.report import Finding, Report
from oz.journal.sealing import seal
from oz.journal.verify import look_at

DAMAGED = ".damaged"


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
        for segment, following in zip(present, [*present[1:], None], strict=True):
            end = following.base if following else state.end_offset
            found = look_at(directory, segment, end, state.manifest)
            if found.findings and segment.is_sealed:
                findings += found.findings
                findings.append(_rewrite(directory, segment, end, state.manifest))
            records += found.records
            size += found.bytes
        state.manifest.save(directory)
        mark = AcknowledgedMark(directory)
        mark.set(state.end_offset)
        mark.close()
    finally:
        lock.release()
    return Report(tuple(findings), len(present), records, size)


def _rewrite(directory: Path, segment: Segment, end: int, manifest: Manifest) -> Finding:
    path = directory / segment.name
    kept = path.with_name(path.name + DAMAGED)
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    with opened(directory, segment, manifest.journal) as source:
        entry, _ = seal(directory, source, end)
    manifest.entries[segment.base] = entry
    return Finding(segment.name, f"written anew; as it was it is {kept.name}")
