"""A writer that is killed, and files whose ends are torn or changed.

The suite kills a dozen times; `OZ_SOAK=1 pytest tests/journal/test_crash.py` kills 500 times, from new seeds.
"""

import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.journal import Journal, Kind, Writer, messages
from oz.journal.schema import VERSION
from support import scripts
from support.sizes import SOAK, size

HERE = Path(__file__).parent
CRASHES = size(12, 500)
PER_JOURNAL = 30


@pytest.mark.sized
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(-(-CRASHES // PER_JOURNAL)))
def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path, part):
    seed = int.from_bytes(os.urandom(4)) if SOAK else part
    rounds = min(PER_JOURNAL, CRASHES - part * PER_JOURNAL)
    result = json.loads(scripts.run(HERE / "crashing.py", tmp_path, rounds, seed, timeout=240))
    assert result["records"] > 0
    assert result["streams"] == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A journal of one stream, and where each of its ten batches ends."""
    directory = tmp_path_factory.mktemp("whole")
    ends = []
    with Writer(directory, seal_on_close=False) as writer:
        stream = directory / f"{0:020d}.arrows"
        for at in range(10):
            writer.append([(f"a.{at}", bytes([at]) * 50)] * 5)
            ends.append(stream.stat().st_size)
    return directory, ends


def copied(directory, change):
    """A copy of a journal, its stream changed, and nothing that tells how far it was acknowledged."""
    copy = Path(tempfile.mkdtemp(dir=directory.parent)) / "journal"
    shutil.copytree(directory, copy)
    (copy / "acknowledged").unlink()
    stream = copy / f"{0:020d}.arrows"
    stream.write_bytes(change(stream.read_bytes()))
    return copy


def offsets_and_payloads(directory, **options):
    return [(record.offset, record.payload) for record in Journal(directory).read(**options)]


EXPECTED = [(at, bytes([at // 5]) * 50) for at in range(50)]


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_a_torn_end_costs_only_what_is_torn(whole, data):
    directory, ends = whole
    size = data.draw(st.integers(ends[0], ends[-1]))
    copy = copied(directory, lambda content: content[:size])
    intact = 5 * sum(end <= size for end in ends)
    torn = size - max(end for end in ends if end <= size)
    assert offsets_and_payloads(copy) == EXPECTED[:intact]
    with Writer(copy) as writer:
        assert writer.end_offset == intact
        assert [finding.cut_bytes for finding in writer.findings] == [torn] * bool(torn)
        assert writer.append([("next", b"new")]) == intact + 1
    assert offsets_and_payloads(copy) == [*EXPECTED[:intact], (intact, b"new")]
    assert Journal(copy).verify().ok
    shutil.rmtree(copy.parent)


def has_another_version(copy, places):
    """Return whether the head of a stream has another version and is damaged elsewhere too.

    A head whose checksum is right with the present version has a damaged version.
    """
    content = (copy / f"{0:020d}.arrows").read_bytes()
    said = messages.IDENTITY.search(content)
    if said is None or int(said[1]) == VERSION:
        return False
    return any(place not in range(*said.span(1)) for place in places if place < size_of_head())


def size_of_head():
    return len(messages.header("0" * 32, 0))


def assert_refused_and_left_alone(copy):
    before = (copy / f"{0:020d}.arrows").read_bytes()
    with pytest.raises(oz.JournalError, match="format version"):
        Writer(copy)
    assert (copy / f"{0:020d}.arrows").read_bytes() == before


def test_a_head_of_another_version_that_is_damaged_elsewhere_is_left_alone(whole):
    directory, _ = whole
    newer = b"oz.journal/%d id=" % (VERSION + 1)

    copy = copied(
        directory, lambda content: b"?" + content[1:].replace(b"oz.journal/%d id=" % VERSION, newer, 1)
    )
    assert has_another_version(copy, {0})
    assert_refused_and_left_alone(copy)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_changed_bytes_are_found_and_cost_the_batches_that_they_are_in(whole, data):
    directory, ends = whole
    places = data.draw(st.lists(st.integers(0, ends[-1] - 1), min_size=1, max_size=3))
    mask = data.draw(st.integers(1, 255))

    def change(content):
        changed = bytearray(content)
        for place in set(places):
            changed[place] ^= mask
        return bytes(changed)

    copy = copied(directory, change)
    if has_another_version(copy, set(places)):
        assert_refused_and_left_alone(copy)
        return
    header = min(ends) - (ends[1] - ends[0])
    hit = {sum(end <= place for end in ends) for place in places if place >= header}
    last = max({*range(10)} - hit, default=-1)
    kept = [(at, payload) for at, payload in EXPECTED[: 5 * (last + 1)] if at // 5 not in hit]
    assert not Journal(copy).verify().ok
    with Writer(copy) as writer:
        assert writer.findings
        end = writer.end_offset
    # What comes before an intact batch stays in its place, as damage; what comes after the last is cut.
    assert end == 5 * (last + 1)
    assert offsets_and_payloads(copy) == kept
    assert [offset for offset, _ in offsets_and_payloads(copy, gaps=True)] == list(range(end))
    assert Journal(copy).verify().ok
    shutil.rmtree(copy.parent)


def test_a_reader_says_what_is_damaged_and_where(whole):
    directory, ends = whole

    copy = copied(directory, lambda content: content[: ends[4] - 9] + b"?" + content[ends[4] - 8 :])
    records = Journal(copy).read()
    with pytest.raises(oz.JournalError, match=rf"byte {ends[3]}: .*checksum.*repair") as caught:
        list(records)
    assert copy.name in str(caught.value)
    assert offsets_and_payloads(copy, end=20) == EXPECTED[:20]


def test_garbage_that_looks_like_a_batch_of_another_journal_is_not_taken_for_one(whole, tmp_path):
    directory, ends = whole
    other = tmp_path / "other"
    with Writer(other, seal_on_close=False) as writer:
        writer.append([("forged", b"")] * 100)
        writer.append([("forged", b"")] * 100)  # begins at an offset that could come next
    forged = (other / f"{0:020d}.arrows").read_bytes()
    copy = copied(directory, lambda content: content[: ends[4] + 8] + forged)
    with Writer(copy) as writer:
        assert writer.end_offset == 25
    assert offsets_and_payloads(copy) == EXPECTED[:25]


def test_what_was_cut_is_logged(whole, caplog):
    directory, ends = whole
    copy = copied(directory, lambda content: content[:-1])
    with caplog.at_level(logging.WARNING, "oz.journal"):
        Writer(copy).close()
    [line] = caplog.messages
    assert f"cut {ends[9] - ends[8] - 1} bytes, all before offset 45 is intact" in line


def test_records_that_were_acknowledged_and_are_gone_are_an_error_to_readers(journal):
    one = journal(*[[("a", b"x")]] * 10)
    stream = one.directory / f"{0:020d}.arrows"
    os.truncate(stream, stream.stat().st_size * 3 // 4)
    with pytest.raises(oz.JournalError):
        list(one.read())


def test_leftovers_of_an_interrupted_replacement_are_removed(many):
    left = [many.directory / name for name in (f"{0:020d}.arrow.tmp", f"{9000:020d}.arrows.tmp")]
    for path in left:
        path.write_text("half")
    Writer(many.directory).close()
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("crash", ["before the stream is removed", "before it is sealed"])
def test_a_seal_that_was_interrupted_is_finished(journal, monkeypatch, crash):
    if crash == "before it is sealed":
        monkeypatch.setattr("oz.journal.tail.seal", lambda *_: (_ for _ in ()).throw(OSError("crash")))
    else:
        monkeypatch.setattr("oz.journal.recovery.remove_sealed_stream", lambda *_: False)
    one = journal([("a", b"1")], [("b", b"2")], segment_bytes=1)
    monkeypatch.undo()
    assert (one.directory / f"{0:020d}.arrows").exists()
    assert [record.payload for record in one.read()] == [b"1", b"2"]
    Writer(one.directory).close()
    assert not (one.directory / f"{0:020d}.arrows").exists()
    assert pa.ipc.open_file(str(one.directory / f"{0:020d}.arrow")).num_record_batches == 1
    assert [record.payload for record in one.read()] == [b"1", b"2"]


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes by Linux's /proc")
def test_recovery_of_a_big_journal_reads_its_tail_only(journal):
    """Ten sealed segments of 1 GiB each, sparse: whoever reads them meets zeros, and is counted."""
    one = journal(*[[(f"a.{at}", b"x" * 1000)] * 100 for at in range(11)], segment_bytes=1)
    manifest = one.directory / "manifest.json"
    data = json.loads(manifest.read_text())
    for entry in data["segments"]:
        os.truncate(one.directory / f"{entry['first_offset']:020d}.arrow", 0)
        os.truncate(one.directory / f"{entry['first_offset']:020d}.arrow", 1 << 30)
        entry["bytes"] = 1 << 30
    from oz.journal.manifest import _checksum

    del data["crc32"]
    manifest.write_text(json.dumps({**data, "crc32": _checksum(data)}))
    with (one.directory / f"{1000:020d}.arrows").open("ab") as stream:
        stream.write(b"torn")

    script = (
        "import sys; from pathlib import Path; from oz.journal import Writer\n"
        "def count(): return int(Path('/proc/self/io').read_text().split()[1])\n"
        "import pyarrow.compute, logging; logging.disable(); before = count()\n"
        "writer = Writer(sys.argv[1]); read = count() - before\n"
        "assert writer.end_offset == 1100 and writer.findings[0].cut_bytes == 4\n"
        "assert writer.append([('b', b'')]) == 1101; writer.close(); print(read)"
    )
    read = int(scripts.run("-c", script, one.directory))
    assert read < 2_000_000, f"{read} bytes read of {10 << 30}"


def test_a_damaged_record_tells_that_it_is_one(whole):
    directory, ends = whole
    copy = copied(directory, lambda content: content[: ends[4] - 9] + b"?" + content[ends[4] - 8 :])
    report = Journal(copy).repair()
    assert {finding.file for finding in report.findings} == {f"{0:020d}.arrows"}
    assert [(found.first_offset, found.records) for found in report.findings if found.records] == [(20, 5)]
    assert (copy / f"{0:020d}.arrows.damaged").exists()
    damaged = [record for record in Journal(copy).read(gaps=True) if record.kind == Kind.DAMAGED]
    assert [record.offset for record in damaged] == [20, 21, 22, 23, 24]
    assert all(record.payload == b"" and not record.is_message for record in damaged)


@pytest.mark.parametrize("content", [b"", b"\0" * 3000, b"?" * 3000])
def test_a_stream_of_which_nothing_is_intact_is_begun_anew_where_the_last_segment_ends(many, content):
    last = max(many.directory.glob("*.arrows"))
    last.write_bytes(content)
    (many.directory / "acknowledged").unlink()
    first = int(last.stem)
    with Writer(many.directory) as writer:
        assert [finding.cut_bytes for finding in writer.findings] == [len(content)]
        assert writer.append([("next", b"")]) == first + 1
    assert [record.offset for record in many.read()] == list(range(first + 1))
    assert many.verify().ok


def test_a_segment_is_put_back_where_its_head_is_damaged(many):
    path = min(many.directory.glob("*.arrow"))
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"?" * 50 + content[150:])
    with pytest.raises(oz.JournalError, match=f"{path.name}: its head is damaged"):
        list(many.read())
    assert [record.offset for record in many.read(start=2000)] == list(range(2000, 3000))
    many.repair()
    assert [record.offset for record in many.read()] == list(range(3000))
    assert many.verify().ok


def test_when_nothing_tells_which_journal_it_is_nothing_is_touched(journal):
    one = journal([("a", b"")])
    (one.directory / "manifest.json").unlink()
    (one.directory / "acknowledged").unlink()
    (one.directory / "epochs.json").unlink()
    stream = one.directory / f"{0:020d}.arrows"
    content = stream.read_bytes().replace(b"id=", b"??=")
    stream.write_bytes(content)
    with pytest.raises(oz.JournalError, match="which journal this is"):
        Writer(one.directory)
    assert stream.read_bytes() == content


def test_files_of_others_are_left_alone(many):
    other = many.directory / "notes.tmp"
    other.write_text("mine")
    Writer(many.directory).close()
    assert other.exists()


def test_a_writer_that_nobody_closed_lets_others_write(tmp_path):
    writer = Writer(tmp_path)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del writer
    Writer(tmp_path).close()
