"""One subject in a big journal, beside reading all of it.

    python benchmarks/journal_haystack.py [--gigabytes 5] [--segments 100] [--rounds 5] [--directory DIR]

Each segment has the same 2,000 subjects and incompressible payloads of 1,000 bytes; one of the segments has
one message of one more subject. The sides take turns: all batches are read, with subject and payload; and
only the one message is looked for, by its subject and by a pattern with a wildcard. The ratio is how many
times longer all takes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time

import machine

from oz.journal import Journal, Writer

SUBJECTS = [f"md.{market}.{symbol}" for market in range(40) for symbol in range(50)]
NEEDLE = "md.17.needle"
PATTERNS = (NEEDLE, "md.*.needle")
WANTED_SECONDS = 1.0
_GROUP = 5000
_PAYLOAD = 1000


def write_journal(directory: str, size: int, segments: int) -> None:
    """Write a journal of about so many bytes, in about so many segments."""
    chance = random.Random(1)
    groups = max(segments, size // (_GROUP * _PAYLOAD))
    with Writer(directory, sync="never", segment_bytes=size // segments) as writer:
        for group in range(groups):
            noise = chance.randbytes(_GROUP * _PAYLOAD)
            payloads = [noise[at : at + _PAYLOAD] for at in range(0, len(noise), _PAYLOAD)]
            subjects = [SUBJECTS[at % len(SUBJECTS)] for at in range(_GROUP)]
            if group == groups // 2:
                subjects[_GROUP // 3] = NEEDLE
            writer.append_columns({"subject": subjects, "payload": payloads})


def seconds(journal: Journal, pattern: str | None) -> tuple[float, int]:
    """Read once; the time that it takes, and the records."""
    began = time.perf_counter()
    rows = sum(batch.num_rows for batch in journal.batches(pattern, columns=["subject", "payload"]))
    return time.perf_counter() - began, rows


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--segments", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory")
    options = parser.parse_args(arguments)
    directory = tempfile.mkdtemp(dir=options.directory)
    try:
        write_journal(directory, int(options.gigabytes * 1e9), options.segments)
        journal = Journal(directory)
        print(machine.describe())
        print(f"{journal.end_offset} records, {len(journal.segments())} segments")
        times: dict[str | None, list[float]] = {pattern: [] for pattern in (None, *PATTERNS)}
        for _ in range(options.rounds):
            for pattern, found in times.items():
                spent, rows = seconds(journal, pattern)
                assert pattern is None or rows == 1
                found.append(spent)
        everything = statistics.median(times.pop(None))
        print(f"all of it: {everything:.2f} s")
        for pattern, found in times.items():
            spent = statistics.median(found)
            verdict = "ok" if spent < WANTED_SECONDS else "TOO SLOW"
            print(f"{pattern}: {spent:.3f} s, {everything / spent:.0f} times faster: {verdict}")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
