"""Batches whose checksums are right and whose contents lie: crafted ones, and those that rotted in memory."""

import logging
import random
import struct

import pytest

import oz
from oz.journal import Journal, Kind, Writer
from oz.journal.messages import IDENTITY, salt_of
from oz.journal.schema import batch_of
from oz.journal.stamp import MARK, PREFIX, Stamp, read_stamp, stamp_message
from support.sizes import size

MUTATIONS = size(150, 20_000)
ROWS = 40
END = 3 * ROWS
MIDDLE = range(ROWS, 2 * ROWS)


def records(offsets):
    return [(f"a.{at}", b"payload %d" % at) for at in offsets]


def places(name):
    """Where the values of a column begin, as they stand in the message of the batch in the middle."""
    buffer = batch_of(records(MIDDLE), ROWS, 1).column(name).buffers()[1]
    return buffer.to_pybytes()[: 4 * (ROWS + 1)]


def shifted(name, by):
    """The last half of the values of a column are said to be elsewhere."""
    was = struct.unpack(f"<{ROWS + 1}i", places(name))
    now = [place + by * (at > ROWS // 2) for at, place in enumerate(was)]
    return places(name), struct.pack(f"<{ROWS + 1}i", *now)


def swapped(name):
    was = places(name)
    return was, was[:4] + was[40:44] + was[8:40] + was[4:8] + was[44:]


LIES = {
    "payloads 300 kB behind their bytes": shifted("payload", 300_000),
    "payloads 2 MB behind their bytes": shifted("payload", 2_000_000),
    "payloads before their bytes": shifted("payload", -5_000),
    "payloads of negative length": swapped("payload"),
    "subjects behind their bytes": shifted("subject", 300_000),
    "subjects that are no text": (b"a.47", b"a.\xff7"),
    "the offset of another record": (struct.pack("<q", 45), struct.pack("<q", 7)),
}


@pytest.fixture
def made(tmp_path):
    logging.getLogger("oz.journal").setLevel(logging.CRITICAL)
    with Writer(tmp_path / "journal", sync="never", seal_on_close=False) as writer:
        for first in range(0, END, ROWS):
            writer.append(records(range(first, first + ROWS)))
    yield tmp_path / "journal"
    logging.getLogger("oz.journal").setLevel(logging.NOTSET)


def rewrite_the_middle(directory, change):
    """Change the message of the batch in the middle; its checksums are right again."""
    path = directory / f"{0:020d}.arrows"
    content = path.read_bytes()
    start, end = (content.rfind(b"\xff" * 4, 0, mark.start()) for mark in list(MARK.finditer(content))[2:4])
    message = bytearray(content[start:end])
    head = PREFIX.size + PREFIX.unpack_from(message)[1]
    salt = salt_of(IDENTITY.search(content)[2].decode())
    stamp = read_stamp(bytes(message[:head]), salt)
    message[head:] = change(message[head:])
    stamp_message(message, Stamp(*stamp[:4]), salt)
    path.write_bytes(content[:start] + message + content[end:])


@pytest.fixture(params=LIES)
def crafted(request, made):
    was, now = LIES[request.param]

    def change(body):
        assert body.count(was) == 1
        return body.replace(was, now)

    rewrite_the_middle(made, change)
    return made


def test_no_way_of_reading_gives_what_a_crafted_batch_points_at(crafted):
    journal = Journal(crafted)
    for read in (
        lambda: list(journal.read()),
        lambda: list(journal.batches()),
        lambda: list(journal.read(start=ROWS + 5)),
    ):
        with pytest.raises(oz.JournalError, match=f"{0:020d}.arrows, byte .* from offset 40 to 79"):
            read()
    assert [one.payload for one in journal.read(end=ROWS)] == [body for _, body in records(range(ROWS))]


def test_verify_names_a_crafted_batch(crafted):
    report = Journal(crafted).verify()
    assert not report.ok
    assert [(one.first_offset, one.records) for one in report.findings] == [(ROWS, ROWS)]


def test_repair_keeps_all_but_a_crafted_batch(crafted):
    Journal(crafted).repair()
    assert Journal(crafted).verify().ok
    found = list(Journal(crafted).read(gaps=True))
    assert [one.offset for one in found] == list(range(END))
    honest = [one for one in found if one.kind == Kind.MESSAGE]
    assert [(one.subject, one.payload) for one in honest] == records(
        at for at in range(END) if at not in MIDDLE
    )


def test_a_writer_goes_on_behind_a_crafted_batch(crafted):
    with Writer(crafted) as writer:
        assert writer.append(records([END])) == END + 1
    assert Journal(crafted).verify().ok


@pytest.mark.sized
@pytest.mark.parametrize("part", range(size(1, 3)))
def test_whatever_a_batch_says_its_records_are_read_or_refused(made, part):
    chance = random.Random(part)
    stream = made / f"{0:020d}.arrows"
    whole = stream.read_bytes()
    for _ in range(MUTATIONS // 3):

        def mutate(body):
            for _ in range(chance.randint(1, 3)):
                at = chance.randrange(0, len(body) - 8)
                some = chance.choice(
                    [chance.randbytes(1), chance.randbytes(4), b"\xff\xff\xff\x7f", b"\0" * 8]
                )
                body[at : at + len(some)] = some
            return body

        stream.write_bytes(whole)
        rewrite_the_middle(made, mutate)
        found, refused = [], None
        try:
            found += [one.offset for one in Journal(made).read(gaps=True)]
        except oz.JournalError as error:
            refused = str(error)
        assert found == list(range(END)) if refused is None else "from offset 40 to 79" in refused
        assert Journal(made).verify().ok is (refused is None)
