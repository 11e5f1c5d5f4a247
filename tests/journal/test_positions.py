"""Positions in a journal: a column that is null where a publisher gave no position."""

from oz.journal import Journal, Record, Writer


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
