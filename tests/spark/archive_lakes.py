"""What a lake holds, as its readers see it, and journals to archive."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from oz.journal import Journal, Record, Writer

ODD_SUBJECTS = [
    "flight.JFK.LAX",
    "flight.EWR.ORD",
    b"\xff\xfe.broken",
    b"broken.\xff",
    "a/b.c",
    "a=b.c",
    "day=1.first_token=2",
    "",
    ".second",
    "é.ü",
    "价格.上海",
    "007.bond",
    "7.bond",
    "with blank.x",
    "per%2Fcent.x",
    "@gaps.x",
    "_INBOX.x",
    "..",
    "../up.x",
    "__HIVE_DEFAULT_PARTITION__.x",
    "null.x",
    "x" * 300,
    "\N{PILE OF POO}" * 60 + ".long",
    "new\nline\0.x",
    "*?[a]{b}.x",
]


def write_journal(directory, records=(), **options):
    # As while it is written.
    with Writer(directory, **{"seal_on_close": False, **options}) as writer:
        for batch in records:
            writer.append(batch)
    return directory


def numbered(first, end, subject="s{}.n{}"):
    """Records whose payload is their offset."""
    return [(subject.format(at % 3, at % 50), b"%d" % at) for at in range(first, end)]


def with_gaps(number):
    """Losses of one publisher."""
    return [Record.of_gap("rv:RUN.*", 3, origin=b"o" * 16, sequence=number), Record.of_gap(">", None)]


def columns_of_journal(directory):
    table = pa.Table.from_batches(Journal(directory).batches(gaps=True))
    return table.sort_by("offset").to_pydict()


def read(lake, columns=None, threads=True):
    """All of a lake, by a reader that knows nothing of it."""
    found = ds.dataset(lake, format="parquet", partitioning="hive")
    return found.to_table(columns=columns, use_threads=threads)


def columns_of_lake(lake):
    """What should equal the journal's columns."""
    table = read(lake).sort_by("offset")
    names = [name for name in table.column_names if name not in ("time", "day", "first_token")]
    return table.select(names).to_pydict()


def offsets(lake, threads=True):
    return read(lake, ["offset"], threads)["offset"].to_pylist()


def assert_each_once(lake, end, first=0):
    assert sorted(offsets(lake)) == list(range(first, end))


def assert_same(journal, lake):
    ours, theirs = columns_of_lake(lake), columns_of_journal(journal)
    assert list(ours) == list(theirs)
    for name in theirs:
        assert ours[name] == theirs[name], name


def is_sorted(path):
    """Whether the subjects of a file ascend, as bytes."""
    import pyarrow.parquet as pq

    subjects = pq.ParquetFile(path).read(["subject"])["subject"].cast(pa.binary()).combine_chunks()
    return len(subjects) < 2 or pc.all(pc.less_equal(subjects[:-1], subjects[1:])).as_py()


def files(lake):
    return sorted(str(path.relative_to(lake)) for path in lake.glob("day=*/*/*.parquet"))
