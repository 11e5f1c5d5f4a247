"""Repairing a journal: what is intact stays at its offset, and what is lost is marked as lost."""

from __future__ import annotations

from pathlib import Path

from oz.errors import JournalError
from oz.journal import own
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
        JournalError: a writer is at work, or the journal is of a newer version; or the system does not let
            it be put in order.
    """
    try:
        lock = WriterLock(directory)
        try:
            return _repair(directory)
        finally:
            lock.release()
    except OSError as error:
        raise JournalError(f"{directory}: it cannot be repaired: {error}") from error


def _repair(directory: Path) -> Report:
    state = recover(directory, closely=True)
    findings = [*state.findings]
    records = size = 0
    present = own.segments(directory, state.manifest)
    for segment, following in zip(present, [*present[1:], None], strict=False):
        end = following.base if following else state.end_offset
        found = look_at(directory, segment, end, state.manifest.journal, state.manifest)
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
    return Report(tuple(findings), len(present), records, size)


def _rewrite(directory: Path, segment: Segment, end: int, manifest: Manifest) -> Finding:
    kept = keep_damaged(directory, segment)
    with opened(directory, segment, manifest.journal) as source:
        entry, _ = seal(directory, source, end)
    manifest.entries[segment.base] = entry
    return Finding(segment.name, f"written anew; as it was it is {kept}")
