"""The columns of a journal that a query makes the source decompress."""

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

import oz
from oz.errors import OptionError
from oz.journal import Record, Writer
from oz.journal.ranges import identity_of
from oz.spark.source.batch import read_share
from oz.spark.source.fetch import Fetcher
from oz.spark.source.headers import HeaderColumns
from oz.spark.source.planning import Range, Share
from oz.spark.source.rows import DecodedRows, Malformed
from oz.spark.source.wanted import WantedRecords
from support.scripts import ENVIRONMENT
from support.waiting import DEADLINE

TYPES = {"offset": LongType(), "subject": StringType(), "time": TimestampType(), "key": StringType()}
PAYLOAD = StructType([StructField("n", LongType())])


def schema(*names):
    return StructType([StructField(name, TYPES.get(name, PAYLOAD), name != "offset") for name in names])


def wanted(*patterns, start_ns=None):
    return WantedRecords([oz.compile(each) for each in patterns], start_ns, None, False)


@pytest.fixture
def journal(tmp_path):
    records = [
        Record("md.a", b'{"n": 1}', time_ns=10_000),
        Record("md.b", b"?", time_ns=20_000),
        Record(b"md.\xff", b'{"n": 3}', time_ns=30_000),
    ]
    with Writer(tmp_path) as writer:
        writer.append([*records, Record.of_gap("md.>", 2)])
    return tmp_path


class Watched(Fetcher):
    """Notes what it is to decompress."""

    def fetch(self, wanted, records, columns):
        for table in super().fetch(wanted, records, columns):
            self.seen = set(table.column_names)
            yield table


def read(directory, rows, records):
    """Read all of a journal; return what was decompressed, and the rows."""
    fetcher = Watched(directory, identity_of(directory), fails_on_loss=True)
    fetcher.compare = lambda epoch, end: None
    share = Share(identity_of(directory), [Range(0, 4)], "", directory)
    found = [row for batch in read_share(share, fetcher, records, rows) for row in batch.to_pylist()]
    return fetcher.seen, found


def test_only_the_columns_of_the_schema_are_decompressed_and_those_that_decide(journal):
    rows = DecodedRows(schema("offset"), "raw")
    assert read(journal, rows, wanted()) == ({"offset", "kind"}, [{"offset": at} for at in range(3)])


def test_patterns_need_both_columns_of_the_subject(journal):
    rows = DecodedRows(schema("offset"), "raw")
    seen, found = read(journal, rows, wanted("md.b"))
    assert seen == {"offset", "kind", "subject", "subject_raw"}
    assert found == [{"offset": 1}]


def test_a_start_time_needs_the_column_time_ns(journal):
    rows = DecodedRows(schema("offset"), "raw")
    seen, found = read(journal, rows, wanted(start_ns=20_000))
    assert seen == {"offset", "kind", "time_ns"}
    assert found == [{"offset": 1}, {"offset": 2}]


def test_a_time_is_made_of_nanoseconds(journal):
    seen, found = read(journal, DecodedRows(schema("time"), "raw"), wanted())
    assert seen == {"time_ns", "kind"}
    assert found[0]["time"] == dt.datetime(1970, 1, 1, microsecond=10, tzinfo=dt.UTC)


def test_a_decoded_payload_needs_what_errors_name(journal):
    rows = DecodedRows(schema("payload"), "json", malformed=Malformed("dropmalformed"))
    seen, found = read(journal, rows, wanted())
    assert seen == {"payload", "kind", "offset"}
    assert found == [{"payload": {"n": 1}}, {"payload": {"n": 3}}]


@pytest.mark.parametrize("mode", ["failfast", "dropmalformed"])
def test_a_mode_needs_the_column_that_it_judges(mode):
    with pytest.raises(OptionError, match="it needs the column payload"):
        DecodedRows(schema("offset"), "json", malformed=Malformed(mode))
    DecodedRows(schema("offset"), "json", malformed=Malformed("permissive"))
    DecodedRows(schema("offset"), "raw", malformed=Malformed(mode))


def test_columns_out_of_headers_need_the_headers():
    from pyspark.sql.types import BinaryType

    only_key = StructType([StructField("key", BinaryType())])
    assert "headers" in DecodedRows(only_key, "raw", HeaderColumns(key="order")).columns


def test_reading_takes_no_pandas(tmp_path):
    # 0.2 s of each process that plans or reads, of which a query starts several.
    with Writer(tmp_path / "journal") as writer:
        writer.append((f"n.{number}", b"") for number in range(70))
    program = """
import sys

from pyspark.sql.types import LongType, StructType, TimestampType

from oz.spark.source.batch import JournalReader
from oz.spark.source.options import read_options

schema = StructType().add("offset", LongType(), False).add("time", TimestampType())
options = read_options({"journal": sys.argv[1], "startingTime": "2001-01-01T00:00Z"})
reader = JournalReader(options, schema)
rows = sum(batch.num_rows for share in reader.partitions() for batch in reader.read(share))
print(rows, "pandas" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "journal"],
        # Without what the tests of Spark import beforehand.
        env={**ENVIRONMENT, "PYTHONPATH": str(Path(oz.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=5 * DEADLINE,
        check=True,
    )
    assert ran.stdout.split() == ["70", "False"]
