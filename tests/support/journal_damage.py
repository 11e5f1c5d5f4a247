"""A small journal, what can befall it, and what was acknowledged in it.

Twelve appends of ten records: three sealed segments of three appends, and a stream of three. The last two are
those of a second writer, so that there is a copy of the directory as the first one left it.
"""

import atexit
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from oz.journal.mark import AcknowledgedMark, read_mark

from oz.journal import Journal, Kind, Writer

GROUP = 10
END = 120
OLDER = 100  # where the copy ends
OPTIONS = {"segment_bytes": 30_000, "sync": "never", "seal_on_close": False}


def group(first, count=GROUP, word="first"):
    return [
        (f"a.{at % 3}", b"%s %d " % (word.encode(), at) + bytes(1000)) for at in range(first, first + count)
    ]


ACKNOWLEDGED = dict(enumerate(payload for _, payload in group(0, END)))


@dataclass
class Made:
    """A journal before anything befalls it."""

    directory: Path
    older: Path
    ends: list[int]

    @property
    def stream(self):
        return self.directory / f"{90:020d}.arrows"

    def sealed(self, base):
        return self.directory / f"{base:020d}.arrow"

    @property
    def mark(self):
        return self.directory / "acknowledged"

    def change(self, path, position, mask=1):
        content = bytearray(path.read_bytes())
        content[position] ^= mask
        with open(path, "r+b") as file:  # in place: it stays the same file
            file.write(content)


def make(where):
    """Make one; from the second on it is a copy of the first, as if it had been written there."""
    if not _TEMPLATE:
        _TEMPLATE.append(_make(Path(tempfile.mkdtemp(prefix="oz-damage-"))))
        atexit.register(shutil.rmtree, _TEMPLATE[0].directory.parent, ignore_errors=True)
    [first] = _TEMPLATE
    made = Made(where / "journal", where / "older", first.ends)
    for source, target in ((first.directory, made.directory), (first.older, made.older)):
        shutil.copytree(source, target)
    note(made, END)
    return made


_TEMPLATE = []


def _make(where):
    directory, older = where / "journal", where / "older"
    ends = []
    with Writer(directory, **OPTIONS) as writer:
        for first in range(0, OLDER, GROUP):
            writer.append(group(first))
    made = Made(directory, older, ends)
    ends.append(made.stream.stat().st_size)
    shutil.copytree(directory, older)
    with Writer(directory, **OPTIONS) as writer:
        for first in range(OLDER, END, GROUP):
            writer.append(group(first))
            ends.append(made.stream.stat().st_size)
    return made


# what can befall it ----------------------------------------------------------------------------------------


def nothing(made):
    pass


def last_batch_rotten(made):
    made.change(made.stream, made.ends[2] - 500)


def middle_batch_rotten(made):
    made.change(made.stream, made.ends[1] - 500)


def last_stamp_rotten(made):
    made.change(made.stream, made.stream.read_bytes().rindex(b"oz1 ") + 6)


def head_rotten(made):
    made.change(made.stream, made.stream.read_bytes().index(b"oz1 ") + 6)


def torn_beyond(made):
    with made.stream.open("ab") as stream:
        stream.write(made.stream.read_bytes()[-3000:])


def torn_below(made):
    os.truncate(made.stream, made.ends[2] - 500)


def stream_cut_between_batches(made):
    os.truncate(made.stream, made.ends[1])


def stream_emptied(made):
    os.truncate(made.stream, 0)


def stream_deleted(made):
    made.stream.unlink()


def stream_older(made):
    shutil.copy(made.older / made.stream.name, made.stream)


def mark_deleted(made):
    made.mark.unlink()


def mark_rotten(made):
    made.change(made.mark, 9)


def mark_older(made):
    note(made, OLDER)


def mark_newer(made):
    note(made, END + 7)


def note(made, end):
    """Have a copy of a journal be acknowledged as if it had been written there."""
    mark = AcknowledgedMark(made.directory)
    mark.set(end, read_mark(made.directory).growing)
    mark.close()


def first_sealed_deleted(made):
    made.sealed(0).unlink()


def sealed_deleted(made):
    made.sealed(30).unlink()


def last_sealed_deleted(made):
    made.sealed(60).unlink()


def sealed_rotten(made):
    content = made.sealed(30).read_bytes()
    made.change(made.sealed(30), len(content) // 2)


def sealed_and_stream_deleted(made):
    made.sealed(60).unlink()
    made.stream.unlink()


def all_segments_deleted(made):
    for path in made.directory.glob("*.arrow*"):
        path.unlink()


def manifest_deleted(made):
    (made.directory / "manifest.json").unlink()


def manifest_rotten(made):
    made.change(made.directory / "manifest.json", 40)


def epochs_deleted(made):
    (made.directory / "epochs.json").unlink()


def epochs_rotten(made):
    made.change(made.directory / "epochs.json", 90)


def restored(made):
    """The whole directory is put back as it was; files may get the numbers of those that were there."""
    shutil.rmtree(made.directory)
    shutil.copytree(made.older, made.directory)


def restored_in_place(made):
    for path in made.directory.iterdir():
        kept = made.older / path.name
        if kept.exists():
            with open(path, "r+b") as file:
                file.write(kept.read_bytes())
                file.truncate()
        else:
            path.unlink()


@dataclass(frozen=True)
class Case:
    """What befalls a journal, and what must come of it.

    Attributes:
        befalls: what.
        lost: the offsets whose records are lost.
        reads: whether readers go through to the end at once, without an error.
        end: where the journal ends after that.
    """

    befalls: object
    lost: range = range(0)
    reads: bool = True
    end: int = END

    @property
    def name(self):
        return self.befalls.__name__

    @property
    def is_restored(self):
        return self.end == OLDER


CASES = [
    Case(nothing),
    Case(last_batch_rotten, range(110, 120), reads=False),
    Case(middle_batch_rotten, range(100, 110), reads=False),
    Case(last_stamp_rotten, range(110, 120), reads=False),
    Case(head_rotten, reads=False),
    Case(torn_beyond),
    Case(torn_below, range(110, 120), reads=False),
    Case(stream_cut_between_batches, range(110, 120), reads=False),
    Case(stream_emptied, range(90, 120), reads=False),
    Case(stream_deleted, range(90, 120), reads=False),
    Case(stream_older, range(100, 120), reads=False),
    Case(mark_deleted),
    Case(mark_rotten),
    Case(mark_older),
    Case(mark_newer, range(120, 127), reads=False, end=127),
    Case(first_sealed_deleted, range(30), reads=False),
    Case(sealed_deleted, range(30, 60), reads=False),
    Case(last_sealed_deleted, range(60, 90), reads=False),
    Case(sealed_rotten, range(30, 60), reads=False),
    Case(sealed_and_stream_deleted, range(60, 120), reads=False),
    Case(all_segments_deleted, range(120), reads=False),
    Case(manifest_deleted),
    Case(manifest_rotten),
    Case(epochs_deleted),
    Case(epochs_rotten),
    Case(restored, end=OLDER),
    Case(restored_in_place, end=OLDER),
]


def check_prefix(found, error, case):
    """Compare what a reader got, offsets with payloads, None for damage, before it ended or failed."""
    offsets = [offset for offset, _ in found]
    assert offsets == list(range(len(offsets))), "a hole that nobody spoke of"
    for offset, payload in found:
        if payload is None:
            assert offset in case.lost
        else:
            assert payload == ACKNOWLEDGED[offset]
    if error is None:
        assert len(found) >= (OLDER if case.befalls is mark_older else case.end)
    else:
        assert not case.reads, error
        numbers = [
            int(word) for word in str(error).replace(",", " ").replace(";", " ").split() if word.isdigit()
        ]
        assert (
            len(offsets) in numbers or case.lost.start in numbers or f"{case.lost.start:020d}" in str(error)
        )


def read_all(directory, **options):
    """All records as offset and payload, None for damage."""
    found = Journal(directory).read(gaps=True, **options)
    return [(one.offset, None if one.kind == Kind.DAMAGED else one.payload) for one in found]
