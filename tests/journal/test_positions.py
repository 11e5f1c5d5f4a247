"""Positions in a journal: a column, null in what was written before there was one."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest

from oz.journal import COLUMNS, Journal, Record, Writer

OLDER = Path(__file__).parents[1] / "compat" / "0.1.0" / "journal"


@pytest.fixture
def older(tmp_path):
    """A journal of version 1, the last segment of which is a stream."""
    return shutil.copytree(OLDER, tmp_path / "journal")


def test_a_position_is_read_as_it_was_written(tmp_path):
    with Writer(tmp_path / "one") as writer:
        writer.append(
            [Record("a", b"1", position=7), Record("b", b"2"), Record("c", b"3", position=2**63 - 1)]
        )
        writer.append_columns({"subject": ["d", "e"], "payload": [b"", b""], "position": range(8, 10)})
        writer.append([("f", b"")])
    journal = Journal(tmp_path / "one")
    assert [one.position for one in journal.read()] == [7, None, 2**63 - 1, 8, 9, None]
    (batch,) = journal.batches("d", columns=["position"])
    assert batch.to_pydict() == {"position": [8]}
    assert journal.verify().ok


def test_what_was_written_without_positions_has_none(older):
    journal = Journal(older)
    assert {one.position for one in journal.read(gaps=True)} == {None}
    for columns in (["position"], ["position", "payload"], list(COLUMNS)):
        batches = list(journal.batches(columns=columns))
        assert all(batch.schema.names == columns for batch in batches)
        assert sum(batch.column("position").null_count for batch in batches) == sum(map(len, batches)) > 0
    assert journal.verify().ok


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_stream_without_positions_ends_and_is_sealed_with_the_column(older, is_empty):
    end = Journal(older).end_offset
    if is_empty:
        stream = next(older.glob("*.arrows"))
        end = int(stream.stem)
        data = stream.read_bytes()
        stream.write_bytes(data[: 8 + int.from_bytes(data[4:8], "little")])
        (older / "acknowledged").unlink()
        (older / "epochs.json").unlink()
    before = list(Journal(older).read(gaps=True, end=end))
    with Writer(older, seal_on_close=False) as writer:
        assert writer.end_offset == end
        writer.append([Record("new", position=41)])
    assert list(Journal(older).read(gaps=True, end=end)) == before
    assert [one.position for one in Journal(older).read(start=end)] == [41]
    (stream,) = older.glob("*.arrows")
    assert int(stream.stem) == end
    with pa.OSFile(str(stream)) as file, pa.ipc.open_stream(file) as reader:
        assert reader.read_all()["position"].to_pylist() == [41]
    for sealed in older.glob("*.arrow"):
        table = pa.feather.read_table(sealed)
        assert int(sealed.stem) < 21 or table["position"].null_count == len(table)
    assert Journal(older).verify().ok


def test_segments_of_both_versions_are_one_table_as_the_documentation_reads_them(older):
    with Writer(older) as writer:
        writer.append([Record("new", position=41)])
    tables = [pa.feather.read_table(path) for path in sorted(older.glob("*.arrow"))]
    whole = pa.concat_tables(tables, promote_options="default")
    assert whole["position"].to_pylist()[-1] == 41
    assert whole["offset"].to_pylist() == list(range(len(whole)))
