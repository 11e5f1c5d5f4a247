"""A name or a note that claims records by the thousand million, of which there are none."""

import json
import os
import struct
from zlib import crc32

import pytest

import oz
from oz.journal import Journal, Writer, sealing
from oz.journal.messages import IDENTITY, header

FAR = 2_000_000_000
RECORDS = [(f"a.{at}", b"%d" % at) for at in range(100)]


@pytest.fixture(params=[False, True], ids=["growing", "sealed"])
def journal(request, tmp_path):
    directory = tmp_path / "journal"
    with Writer(directory, seal_on_close=request.param) as writer:
        writer.append(RECORDS)
    return directory


def id_of(directory):
    return IDENTITY.search(next(directory.glob("*.arrow*")).read_bytes())[2].decode()


def claim_by_name(directory):
    name = f"{FAR:020d}.arrows"
    (directory / name).write_bytes(header(id_of(directory), FAR))
    return name


def claim_by_mark(directory):
    path = directory / "acknowledged"
    data = bytearray(path.read_bytes())
    struct.pack_into("<q", data, 8, FAR)
    struct.pack_into("<I", data, len(data) - 4, crc32(data[:-4]))
    path.write_bytes(data)
    return "acknowledged"


def claim_by_manifest(directory):
    path = directory / "manifest.json"
    data = json.loads(path.read_text())
    del data["crc32"]
    data["first_offset"] = 0
    one = {"bytes": 1000, "min_time_ns": 1, "max_time_ns": 1, "gaps": 0, "lost": 0}
    one["subjects"] = {"complete": True, "prefixes": []}
    data["segments"] += [
        {"first_offset": 1000 + FAR * at, "end_offset": 1000 + FAR * (at + 1), **one} for at in range(3)
    ]
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**data, "crc32": f"{crc32(text.encode()):08x}"}))
    return "manifest.json"


CLAIMS = (claim_by_name, claim_by_mark, claim_by_manifest)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("claim", CLAIMS)
def test_an_absurd_gap_is_refused_by_the_name_of_what_claims_it(journal, claim):
    if not (journal / "manifest.json").exists():
        with Writer(journal):
            pass
    name = claim(journal)
    before = {path.name: path.stat().st_size for path in journal.iterdir()}
    for work in (Writer, lambda directory: Journal(directory).repair()):
        with pytest.raises(oz.JournalError, match=f"more than 10000000, and only .*{name}.* claims"):
            work(journal)
    assert sum(path.stat().st_size for path in journal.iterdir()) < sum(before.values()) + 10_000
    assert not Journal(journal).verify().ok

    os.rename(journal / name, journal.with_name(name))  # which is what the error says to do
    Journal(journal).repair()
    assert [(one.subject, one.payload) for one in Journal(journal).read()] == RECORDS


def test_a_gap_that_may_be_is_filled(journal, monkeypatch):
    base = 60_000
    (journal / f"{base:020d}.arrows").write_bytes(header(id_of(journal), base))
    with Writer(journal) as writer:
        assert writer.append([("b", b"")]) == base + 1
    found = list(Journal(journal).read(gaps=True))
    assert [one.offset for one in found] == list(range(base + 1))
    assert Journal(journal).verify().ok
    monkeypatch.setattr(sealing, "MOST_LOST", 10)
    (journal / f"{base + 100:020d}.arrows").write_bytes(header(id_of(journal), base + 100))
    with pytest.raises(oz.JournalError, match="more than 10,"):
        Writer(journal)
