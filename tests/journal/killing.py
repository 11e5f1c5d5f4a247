"""Kill writers of a journal, and compare what is left with an oracle.

    python killing.py DIRECTORY ROUNDS SEED

In each round a child process opens the journal and appends until it is killed with SIGKILL: before, within and
after each system call of appending, sealing, retention and opening, in turn. The child reports through a pipe
each group that it begins to append, and each acknowledged group with its offsets and digest.

Between the rounds the tail behind the acknowledged size is torn or overwritten. Two readers follow the
journal all the time. The oracle is the pipe: no acknowledged record may be lost, none may come twice, no
offset may name two records, and readers must see every record once.
"""

import hashlib
import itertools
import json
import logging
import os
import random
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from oz.journal import Journal, JournalGap, Writer
from support.journals import acknowledged, active, content, key_of, overwrite

# Python 3.12 and later warn of a fork beside threads. The threads of Arrow survive a fork.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

# A kill leaves the page cache alone, so that waiting for the disk would only cost time.
os.fsync = os.fdatasync = os.fstat

CHANGING = (
    "open",
    "write",
    "writev",
    "pwrite",
    "pwritev",
    "fsync",
    "fdatasync",
    "rename",
    "replace",
    "unlink",
    "link",
    "ftruncate",
    "truncate",
)
END = "end"
"""Subject of the last record, at which readers stop."""


class Killer:
    """Kills this process at one of the calls that change a file."""

    def __init__(self):
        self.calls = []
        self._at = self._how = self._counter = None
        for name in CHANGING:
            setattr(os, name, self._wrap(name, getattr(os, name)))

    def arm(self, at, how):
        """Kill before, within or after call number `at` from now on."""
        self._at, self._how, self._counter = at, how, itertools.count()

    def _wrap(self, name, real):
        def call(*arguments, **options):
            if self._counter is None:
                return real(*arguments, **options)
            is_last = next(self._counter) == self._at
            self.calls.append(name)
            if is_last and self._how == "within" and name in ("write", "writev"):
                data = bytes(arguments[1]) if name == "write" else b"".join(map(bytes, arguments[1]))
                REAL_WRITE(arguments[0], data[: len(data) // 2])
            elif is_last and self._how == "after":
                with suppress(OSError):
                    real(*arguments, **options)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call


REAL_WRITE = os.write


def say(pipe, *values):
    REAL_WRITE(pipe, (" ".join(map(str, values)) + "\n").encode())


def append(writer, pipe, number, group, count):
    """Append one group, and report its beginning and its acknowledgement."""
    records = [content(number, group, at) for at in range(count)]
    say(pipe, "begin", group, count)
    end = writer.append(records)
    say(pipe, "done", group, count, end, digest(records))


def digest(records):
    return hashlib.sha256(repr([(record[0], bytes(record[1])) for record in records]).encode()).hexdigest()


def write_until_killed(directory, pipe, number):
    """Append and seal; killed at call number `number // 3`; the opening is the last phase."""
    killer = Killer()
    writer = Writer(directory, retain_bytes=40_000)
    say(pipe, "open", writer.end_offset)
    for group in range(3):
        append(writer, pipe, number, group, 40)
    writer.wait_sealed()
    killer.arm(number // 3, ("before", "within", "after")[number % 3])
    writer.roll()
    append(writer, pipe, number, 3, 5)
    writer.wait_sealed()
    writer.close()
    Writer(directory, retain_bytes=40_000).close()
    killer.arm(-1, "")
    say(pipe, "survived", len(killer.calls))


def run_child(directory, number):
    """Let a child write until it is killed; return the lines that it reported."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(readable)
            write_until_killed(directory, writable, number)
            os._exit(0)
        except BaseException as error:
            print(f"round {number}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    os.close(writable)
    with os.fdopen(readable) as lines:
        reported = lines.readlines()
    _, status = os.waitpid(child, 0)
    is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert is_killed or (status == 0 and reported[-1:] and reported[-1].startswith("survived")), (
        f"the writer failed: {status}"
    )
    return [line.split() for line in reported if line.endswith("\n")]


class Oracle:
    """Record of each offset, as the pipe and the readers reported it."""

    def __init__(self):
        self.known = {}
        self.acknowledged = set()
        self.end = 0
        self.begun = set()  # groups that may be in the journal in part

    def add(self, number, lines):
        """Add the reports of a round."""
        for word, *values in lines:
            if word == "begin":
                self.begun.add((number, int(values[0])))
            elif word == "done":
                group, count, end = map(int, values[:3])
                records = [content(number, group, at) for at in range(count)]
                assert values[3] == digest(records)
                for at in range(count):
                    self.note(end - count + at, (number, group, at))
                self.acknowledged |= set(range(end - count, end))
                assert end - count >= self.end, "an offset was given twice"
                self.end = end
                self.begun.remove((number, group))
            elif word == "open":
                assert int(values[0]) >= self.end, "the writer continues before the acknowledged end"

    def note(self, offset, key):
        """Note that an offset names a record; it may never name another."""
        assert self.known.setdefault(offset, key) == key, f"offset {offset}: {key} after {self.known[offset]}"

    def check(self, directory, what):
        """Compare the journal with all reports."""
        seen, keys = set(), set()
        for record in Journal(directory).read():
            if isinstance(record, JournalGap):
                continue
            key = key_of(record.payload)
            assert (record.subject, record.payload) == content(*key), (
                f"{what}: other bytes at {record.offset}"
            )
            if record.offset not in self.known:
                assert key[:2] in self.begun, (
                    f"{what}: offset {record.offset} holds {key}, which is not begun"
                )
            self.note(record.offset, key)
            seen.add(record.offset)
            assert key not in keys, f"{what}: {key} comes twice"
            keys.add(key)
        lost = self.acknowledged - seen
        # Retention removes the oldest.
        lost = {offset for offset in lost if offset > min(seen, default=0)}
        assert not lost, f"{what}: {len(lost)} acknowledged records are lost, from {min(lost)}"
        for group in self.begun:
            partial = sorted(key[2] for key in keys if key[:2] == group)
            assert partial == list(range(len(partial))), f"{what}: the torn group {group} has holes"


def tear(directory, chance):
    """Tear or overwrite the bytes behind the acknowledged size of the active segment."""
    path = active(directory)
    if path is None or not Path(directory, "acknowledged").exists():
        return "none"
    segment, _, size, _ = acknowledged(directory)
    if not segment or segment not in path.name:
        return "none"
    have = path.stat().st_size
    how = chance.choice(("leave", "cut", "garbage", "zeros", "overwrite"))
    if how == "cut":
        os.truncate(path, chance.randint(size, have))
    elif how in ("garbage", "zeros"):
        count = chance.choice((1, 7, 8, 1000, 70_000))
        overwrite(path, have, chance.randbytes(count) if how == "garbage" else bytes(count))
    elif how == "overwrite" and have > size:
        overwrite(path, chance.randrange(size, have), chance.randbytes(chance.randrange(1, 100)))
    return how


def follow(directory, path, restarts):
    """Reader process: write offset and key of each record to a file, until the last record."""
    with Path(path).open("w", buffering=1) as out:
        offset = 0
        while True:
            for record in Journal(directory).read(start=offset, follow=True):
                if isinstance(record, JournalGap):
                    print("gap", record.first, record.end, record.reason, file=out)
                    offset = record.end
                    continue
                if record.subject == END:
                    return
                print(record.offset, *key_of(record.payload), file=out)
                offset = record.offset + 1
                if restarts and not offset % 97:
                    break


def start_readers(directory):
    """Start two readers in processes of their own; return their process ids and files."""
    found = []
    for at in range(2):
        path = f"{directory}.reader{at}"
        child = os.fork()
        if child == 0:
            try:
                follow(directory, path, restarts=bool(at))
                os._exit(0)
            except BaseException as error:
                print(f"reader {at}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
        found.append((child, path))
    return found


def check_reader(path, oracle):
    """Check that a reader saw each record once and in order; return the number."""
    reached = seen = 0
    for line in Path(path).read_text().splitlines():
        if line.startswith("gap"):
            _, _, end, _ = line.split()
            reached = max(reached, int(end))
            continue
        offset, *key = map(int, line.split())
        assert offset >= reached, f"a reader saw offset {offset} after {reached - 1}"
        assert oracle.known[offset] == tuple(key), f"a reader saw {key} at {offset}"
        reached, seen = offset + 1, seen + 1
    return seen


def main(directory, rounds, seed):
    logging.disable()
    Writer(directory).close()
    readers = start_readers(directory)
    try:
        found = attack(directory, rounds, seed, readers)
    except BaseException:
        for child, _ in readers:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    print(json.dumps(found))


def attack(directory, rounds, seed, readers):
    """Run the rounds; return their counts."""
    chance = random.Random(seed)
    oracle = Oracle()
    torn, calls = [], 0
    for number in range(rounds):
        lines = run_child(directory, number)
        oracle.add(number, lines)
        oracle.check(directory, f"round {number}, before the next writer")
        torn.append(tear(directory, chance))
        oracle.check(directory, f"round {number}, torn tail ({torn[-1]})")
        if chance.random() < 0.7:
            with Writer(directory) as writer:
                assert writer.end_offset >= oracle.end
            oracle.check(directory, f"round {number}, opened again")
            oracle.end = max(oracle.end, writer.end_offset)
            report = Journal(directory).verify()
            assert report.ok, f"round {number}: {report.findings}"
        oracle.acknowledged |= oracle.known.keys()
        if lines and lines[-1][0] == "survived":
            calls = int(lines[-1][1])
            if number // 3 >= calls:
                break
    # A group whose writer was killed before the acknowledgement may appear only now.
    Writer(directory).close()
    oracle.check(directory, "opened at the end")
    oracle.acknowledged |= oracle.known.keys()
    with Writer(directory) as writer:
        writer.append([(END, b"")])
    seen = []
    for child, path in readers:
        _, status = os.waitpid(child, 0)
        assert status == 0, f"a reader failed: {status}"
        seen.append(check_reader(path, oracle))
    assert Journal(directory).verify().ok
    return {
        "rounds": number + 1,
        "records": len(oracle.acknowledged),
        "seen": seen,
        "calls": calls,
        "torn": sum(how != "none" for how in torn),
    }


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
