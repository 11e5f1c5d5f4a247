"""Small random traffic for the jobs, as a journal and as a DataFrame."""

import random

import pyarrow as pa
from oz.journal.schema import SCHEMA

from oz.journal import Journal, Record, Writer

START = 1_772_366_400_000_000_000
ODD = [
    "<script>alert(1)</script>.&\"'",
    b"raw.\xff.x",
    b"raw.\xfe.x",
    "",
    "one",
    "a.b",
    "a..b",
    "x.\u202ey",
    "été.é",
]


def random_records(seed, count=400, hours=5):
    """Messages of several publishers and of plain ones, losses, counts that begin anew, and odd subjects."""
    chance = random.Random(seed)
    subjects = [".".join(chance.choices("abcdef", k=chance.randint(1, 5))) for _ in range(30)] + ODD
    sequences = dict.fromkeys((b"\x01" * 16, b"\x02" * 16, b"\x03"), 0)
    time_ns, records = START, []
    for _ in range(count):
        time_ns += int(chance.expovariate(1) * hours * 3600e9 / count)
        payload = bytes(chance.choice((0, 1, 7, 8, 100, 1000, chance.randint(0, 5000))))
        origin = chance.choice([None, *sequences])
        what = chance.random()
        if what < 0.03:
            lost = chance.choice((None, 1, 17))
            known = sequences.get(origin)
            records.append(Record.of_gap("nats:>", lost, origin=origin, sequence=known, time_ns=time_ns))
            if known is not None:
                sequences[origin] += lost or 0
            continue
        if what < 0.05 and origin is not None:
            sequences[origin] = 0
        elif what < 0.08 and origin is not None:
            sequences[origin] += chance.randint(1, 9)
        number = sequences.get(origin)
        records.append(Record(chance.choice(subjects), payload, time_ns, origin, number))
        if number is not None:
            sequences[origin] += 1
    records.append(Record("", b"", time_ns, kind=2))
    return records


def record_journal(directory, records):
    with Writer(directory, segment_bytes=20_000) as writer:
        for at in range(0, len(records), 50):
            writer.append(records[at : at + 50])
    return directory


def as_dataframe(spark, directory):
    batches = list(Journal(directory).batches(gaps=True))
    return spark.createDataFrame(pa.Table.from_batches(batches, SCHEMA))
