"""Files of some kilobytes that hold gigabytes of compressed zeros."""

import subprocess
import sys

import pyarrow as pa
import pytest

from oz.journal import Journal, Writer, walk
from oz.journal.layout import MOST_DECODED, blocks_in
from oz.journal.messages import Messages, header
from oz.journal.schema import batch_of
from support.sizes import in_suite, one_of_each

JOURNAL = "0123456789abcdef" * 2
SEALED, GROWING = f"{0:020d}.arrow", f"{0:020d}.arrows"
SMALLER = MOST_DECODED // 8
"""What the programs take for the most that is decoded at once: they work the same way, and less."""
BOMB = 16 * SMALLER
PROGRAM = """
import resource, sys
import oz.cli.journal, pyarrow.parquet
import oz
from oz.cli import main
from oz.journal import Journal, Writer, layout, runs, sealing
for module in (layout, runs, sealing):
    module.MOST_DECODED //= 8
way, directory = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    if way == "read":
        sum(1 for _ in Journal(directory).read())
    elif way == "few columns":
        sum(one.num_rows for one in Journal(directory).batches(columns=["offset", "payload"]))
    elif way == "verify":
        print(*Journal(directory).verify().findings)
    elif way == "repair":
        print(*Journal(directory).repair().findings)
    elif way == "write":
        with Writer(directory) as writer:
            print(*writer.findings)
    elif way == "archive":
        Journal(directory).archive(directory + "-archive")
    else:
        main(["journal", "export", directory, directory + ".parquet"], standalone_mode=False)
except (oz.JournalError, SystemExit) as error:
    print(error)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print("grew", (after - before) // 1024)
"""


def messages(payloads):
    """Make batches of so many zeros each, and what an Arrow file begins and ends with."""
    made = Messages(JOURNAL, 0)
    whole = [made.of(batch_of([("a", bytes(size))], at, 1)) for at, size in enumerate(payloads)]
    return made.head, whole, made.tail()


def sealed(directory, payloads):
    head, whole, tail = messages(payloads)
    directory.mkdir()
    (directory / SEALED).write_bytes(head + b"".join(whole) + tail)
    return directory


def growing(directory, payloads):
    _, whole, _ = messages(payloads)
    directory.mkdir()
    (directory / GROWING).write_bytes(header(JOURNAL, 0) + b"".join(whole))
    return directory


def run(way, directory):
    program = [sys.executable, "-c", PROGRAM, way, str(directory)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        out, err = ran.communicate(timeout=100)
    said, _, grew = out.rpartition("grew ")
    assert grew, err
    return said + err, int(grew)


@pytest.mark.parametrize(
    ("way", "make"), one_of_each(["read", "few columns", "verify", "export"], [sealed, growing])
)
def test_no_way_of_reading_takes_what_a_bomb_claims(tmp_path, way, make):
    said, grew = run(way, make(tmp_path / "journal", [BOMB, 1]))
    assert "bytes of memory" in said
    assert "oz journal repair" in said or way == "verify"
    assert grew < 64


@pytest.mark.parametrize(("way", "make"), one_of_each(["repair", "write"], [growing, sealed]))
def test_no_way_of_mending_takes_what_a_bomb_claims(tmp_path, make, way):
    said, grew = run(way, make(tmp_path / "journal", [BOMB, 1]))
    assert "bytes of memory" in said
    assert grew < 64
    assert run("archive", tmp_path / "journal")[1] < 64
    if way == "repair":
        assert [one.offset for one in Journal(tmp_path / "journal").read()] == [1]
        assert Journal(tmp_path / "journal").verify().ok


@pytest.mark.parametrize(
    ("way", "make"),
    in_suite(
        [("read", growing), ("verify", sealed)],
        [(way, make) for way in ("export", "repair") for make in (growing, sealed)]
        + [("read", sealed), ("verify", growing)],
    ),
)
def test_many_batches_that_are_just_small_enough_are_not_held_together(tmp_path, make, way):
    directory = make(tmp_path / "journal", [SMALLER // 2] * 48)
    said, grew = run(way, directory)
    assert grew < 110  # and not 192, nor twice that
    assert "bytes of memory" not in said


def test_a_footer_leads_to_no_other_batches(tmp_path):
    """What `verify` opens as other programs do is what it has looked at."""
    directory = sealed(tmp_path / "journal", [10, 10])
    other = sealed(tmp_path / "other", [10, 10, 10])
    data = (directory / SEALED).read_bytes()
    mine, theirs = blocks_in(data), blocks_in((other / SEALED).read_bytes())
    assert (len(mine), len(theirs)) == (2, 3)
    footer = (other / SEALED).read_bytes()[theirs[-1].position + theirs[-1].head + theirs[-1].body :]
    (directory / SEALED).write_bytes(data[: mine[-1].position + mine[-1].head + mine[-1].body] + footer)
    [finding] = Journal(directory).verify().findings[-1:]
    assert "its footer names 3 batches, and not the 2 that are intact" in str(finding)


@pytest.mark.parametrize("cut", [0, 5, 11, 200])
def test_a_footer_that_ends_too_early_is_said(cut):
    _, _, tail = messages([1])
    with pytest.raises(ValueError, match=r"footer ends too early|does not end as|longer than"):
        blocks_in(bytes(tail[cut + 20 :][:cut]))


def test_what_a_writer_takes_is_read_again_however_well_it_compresses(tmp_path):
    """A payload of zeros that a compressed batch would be refused for is sealed as it is."""
    with Writer(tmp_path / "journal") as writer:
        writer.append([("a", bytes(MOST_DECODED + 1)), ("b", b"1")])
    assert (tmp_path / "journal" / SEALED).stat().st_size > MOST_DECODED
    assert [len(one.payload) for one in Journal(tmp_path / "journal").read()] == [MOST_DECODED + 1, 1]
    assert Journal(tmp_path / "journal").verify().ok
    with pa.ipc.open_file(tmp_path / "journal" / SEALED) as file:
        assert file.read_all().num_rows == 2


def test_a_message_of_more_than_anybody_writes_is_not_read(tmp_path, monkeypatch):
    """A sparse file takes no room on the disk; its bytes would in memory."""
    directory = growing(tmp_path / "journal", [1])
    assert Journal(directory).verify().records == 1
    monkeypatch.setattr(walk, "MOST_BODY", 100)
    report = Journal(directory).verify()
    assert report.records == 0
    assert "which nobody writes" in str(report.findings)
