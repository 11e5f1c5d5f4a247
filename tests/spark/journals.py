"""Journals for the tests of `format("oz")` and `oz.spark.read`."""

from datetime import UTC, datetime, timedelta

import msgpack

from oz.journal import GAP, Writer

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SUBJECTS = ("a.b", "a.c", "a.b.c", "b.c", b"a.\xff")


def time_of(offset):
    return BEGIN + timedelta(seconds=offset)


def record(offset):
    """Make a record; every seventh is a gap record."""
    if offset % 7 == 6:
        return {
            "subject": "a.>",
            "payload": b"",
            "kind": GAP,
            "lost": 3,
            "time": time_of(offset),
            "origin": b"p",
        }
    return {
        "subject": SUBJECTS[offset % len(SUBJECTS)],
        "payload": b'{"n": %d}' % offset,
        "time": time_of(offset),
        "origin": b"p",
        "sequence": offset,
        "position": offset * 2,
        "reply_to": b"r" if offset % 2 else None,
        "headers": msgpack.packb({"n": offset, "sent": offset * 10**9, "k": "key"}) if offset % 3 else None,
    }


def open_journal(directory, rows, *, sealed, **options):
    """Write records; those from offset `sealed` on stay in the active segment. The writer stays open."""
    writer = Writer(directory, segment_bytes=1 << 30, **options)
    step = max(1, sealed // 3)
    for first in range(0, sealed, step):
        writer.append([record(offset) for offset in range(first, min(first + step, sealed))])
        writer.roll()
    writer.wait_sealed()
    if rows > sealed:
        writer.append([record(offset) for offset in range(sealed, rows)])
    return writer


def append_numbers(writer, first, end, *, roll=True):
    """Append messages whose payload is their offset."""
    writer.append([(f"n.{offset % 5}", b"%d" % offset) for offset in range(first, end)])
    if roll:
        writer.roll()
        writer.wait_sealed()
