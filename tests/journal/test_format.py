"""What other programs see, and what the specification in docs/journal.md promises."""

import json
import shutil
from zlib import crc32

import pyarrow as pa
import pyarrow.feather
import pytest

import oz
from oz.journal import COLUMNS, Journal, Writer, manifest, messages
from oz.journal.stamp import MARK
from support.sizes import in_suite, size

FIRST = f"{0:020d}"


def sealed_and_stream(journal):
    *sealed, last = sorted(path for path in journal.directory.iterdir() if path.suffix.startswith(".arrow"))
    return sealed, last


def test_sealed_segments_are_arrow_files_and_the_last_is_an_arrow_stream(many):
    sealed, last = sealed_and_stream(many)
    assert len(sealed) > 2
    offsets = []
    for path in sealed:
        assert path.suffix == ".arrow"
        table = pa.feather.read_table(path)
        assert int(path.stem) == table["offset"][0].as_py() == len(offsets)
        offsets += table["offset"].to_pylist()
    assert last.suffix == ".arrows"
    with pa.OSFile(str(last)) as file, pa.ipc.open_stream(file) as reader:
        table = reader.read_all()
    assert table.column_names == list(COLUMNS)
    assert offsets + table["offset"].to_pylist() == list(range(3000))


def test_a_sealed_segment_is_compressed_and_a_sealed_stream_is_gone(many):
    sealed, _ = sealed_and_stream(many)
    assert not [path for path in sealed if path.with_suffix(".arrows").exists()]
    assert all(path.stat().st_size < 20_000 for path in sealed)


def test_the_stamp_of_each_batch_is_as_the_specification_says(many):
    sealed, last = sealed_and_stream(many)
    for path, start in ((sealed[0], 8), (last, 0)):
        data = path.read_bytes()
        assert data[:8] == (b"ARROW1\0\0" if start else b"\xff\xff\xff\xff" + data[4:8])
        position, salt, at = start, 0, int(path.stem)
        identity = data[data.index(b"oz.journal/1 id=") :][16:48]
        while data[position + 4 : position + 8] != b"\0\0\0\0" and position < len(data):
            length = int.from_bytes(data[position + 4 : position + 8], "little")
            head = data[position : position + 8 + length]
            stamp = MARK.search(head)
            first, rows, low, high, body_length, body_crc, head_crc = (int(one, 16) for one in stamp.groups())
            blank = head[: stamp.end() - 8] + b"00000000" + head[stamp.end() :]
            body = data[position + len(head) : position + len(head) + body_length]
            assert crc32(blank, salt) == head_crc
            assert crc32(body) == body_crc
            assert (first, low <= high) == (at, True)
            at += rows
            position += len(head) + body_length
            salt = crc32(identity)
    assert at == 3000


def test_the_manifest_says_what_each_sealed_segment_holds(many):
    data = json.loads((many.directory / "manifest.json").read_text())
    checksum = data.pop("crc32")
    assert checksum == f"{crc32(json.dumps(data, sort_keys=True, separators=(',', ':')).encode()):08x}"
    assert (data["format"], data["version"]) == ("oz.journal", 1)
    first = data["segments"][0]
    records = list(many.read(end=first["end_offset"]))
    assert first["first_offset"] == 0
    assert first["bytes"] == (many.directory / f"{FIRST}.arrow").stat().st_size
    assert first["min_time_ns"] == min(record.time_ns for record in records)
    assert first["max_time_ns"] == max(record.time_ns for record in records)
    assert (first["gaps"], first["lost"]) == (0, 0)
    assert all(
        any(record.subject.startswith(prefix) for prefix in first["subjects"]["prefixes"])
        for record in records
    )


@pytest.mark.parametrize("harm", in_suite(["missing", "flipped", "stale"], ["empty", "not json"]))
def test_a_manifest_that_is_lost_or_damaged_is_made_again(many, harm):
    path = many.directory / "manifest.json"
    whole = path.read_bytes()
    data = json.loads(whole)
    changed = {
        "missing": None,
        "empty": b"",
        "flipped": whole.replace(b'"gaps": 0', b'"gaps": 1', 1),
        "not json": whole[:-30],
        "stale": json.dumps(data | {"segments": data["segments"][:1]}).encode(),
    }[harm]
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    assert sum(1 for _ in many.read()) == 3000
    assert not many.verify().ok
    with Writer(many.directory, seal_on_close=False) as writer:
        assert [finding.file for finding in writer.findings] == ["manifest.json"]
    assert json.loads(path.read_text()) == json.loads(whole)
    assert many.verify().ok


def test_a_manifest_that_knows_too_little_is_completed(many):
    (many.directory / "manifest.json").unlink()
    kept = many.directory.with_name("kept")
    shutil.copytree(many.directory, kept)
    entries = len(json.loads(_repaired_manifest(kept))["segments"])
    first = many.directory / f"{FIRST}.arrow"
    aside = first.rename(first.with_suffix(".aside"))
    many.repair()
    aside.rename(first)
    assert len(json.loads((many.directory / "manifest.json").read_text())["segments"]) == entries - 1
    Writer(many.directory, seal_on_close=False).close()
    assert (many.directory / "manifest.json").read_bytes() == (kept / "manifest.json").read_bytes()


def _repaired_manifest(directory):
    Journal(directory).repair()
    return (directory / "manifest.json").read_text()


@pytest.mark.parametrize("garbage", [b"\0" * 64, b"garbage", b"\xff" * 4096])
def test_garbage_after_the_end_of_a_segment_does_no_harm(many, garbage):
    sealed, last = sealed_and_stream(many)
    for path in (sealed[1], last):
        with path.open("ab") as file:
            file.write(garbage)
    assert [record.offset for record in many.read()] == list(range(3000))
    assert many.repair().findings
    assert many.verify().ok
    assert pa.feather.read_table(sealed[1]).num_rows
    assert [record.offset for record in many.read()] == list(range(3000))


@pytest.mark.parametrize("name", ["manifest.json", f"{FIRST}.arrows"])
def test_another_version_is_refused(journal, monkeypatch, name):
    one = journal([("a", b"")])
    path, known = one.directory / name, manifest.load(one.directory)
    with monkeypatch.context() as patch:
        if name == "manifest.json":
            patch.setattr(manifest, "VERSION", 2)
            known.save(one.directory)
        else:
            patch.setattr(messages, "VERSION", 2)
            path.write_bytes(messages.header(known.journal, 0) + b"something new")
    newer = path.read_bytes()
    for work in (lambda: list(Journal(one.directory).read()), lambda: Writer(one.directory), one.repair):
        with pytest.raises(oz.JournalError, match="format version 2; this oz reads version 1"):
            work()
    assert path.read_bytes() == newer


def test_a_directory_without_a_journal_is_said(tmp_path):
    for directory in (tmp_path, tmp_path / "none"):
        with pytest.raises(oz.JournalError, match="no journal"):
            Journal(directory)


def test_other_files_in_the_directory_are_left_alone(many):
    (many.directory / "README").write_text("mine")
    (many.directory / "1.arrow").write_text("mine")
    assert sum(1 for _ in many.read()) == 3000
    assert many.repair().ok
    assert (many.directory / "1.arrow").read_text() == "mine"


@pytest.mark.parametrize("bit", in_suite([1, 6], [0, 2, 3, 4, 5, 7]))
def test_a_flipped_bit_in_the_version_is_damage(many, bit):
    sealed, _ = sealed_and_stream(many)
    for path, before in ((many.directory / "manifest.json", b'"version": '), (sealed[1], b"oz.journal/")):
        whole = path.read_bytes()
        at = whole.index(before) + len(before)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        assert not many.verify().ok
        many.repair()
        assert many.verify().ok
        assert many.end_offset == 3000


@pytest.mark.sized
def test_verify_finds_each_flip_in_what_other_programs_need(many):
    path = sealed_and_stream(many)[0][1]
    whole = path.read_bytes()
    footer = len(whole) - int.from_bytes(whole[-10:-6], "little") - 10
    for at in (*range(len(messages.FILE_MAGIC)), *range(footer, len(whole), size(67, 1))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert [one.file for one in many.verify().findings] == [path.name], at - footer
    many.repair()
    assert many.verify().ok
    assert pa.feather.read_table(path).num_rows > 0
