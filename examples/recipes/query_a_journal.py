"""Record messages, and query the journal with pyarrow. DuckDB, Polars and pandas read the same files."""

import tempfile
import threading
from pathlib import Path

import pyarrow.dataset

import oz
from oz.journal import Journal, Recorder

with tempfile.TemporaryDirectory() as directory, oz.Publisher("tcp://127.0.0.1:*") as publisher:
    with Recorder(directory, ["md.>"], source=publisher.endpoint) as recorder:
        recording = threading.Thread(target=recorder.run)
        recording.start()
        publisher.wait_for_subscribers("md.xetra.sap")
        for price in (b"128.4", b"128.6", b"128.5"):
            publisher.publish("md.xetra.sap", price)
        publisher.publish("md.nyse.ibm", b"171.2")
        publisher.flush()
        while recorder.stats.recorded < 4:
            recording.join(0.05)
        recorder.stop()
        recording.join()

    # oz: a pattern, a range of offsets or times, columns.
    table = Journal(directory).table("md.xetra.*", columns=["offset", "payload"])
    print("oz:", [float(payload) for payload in table["payload"].to_pylist()])

    # Any tool: sealed segments are Parquet files.
    files = sorted(str(file) for file in Path(directory).glob("*.parquet"))
    counts = (
        pyarrow.dataset.dataset(files)
        .to_table()
        .group_by("subject")
        .aggregate([("offset", "count")])
        .sort_by("subject")
    )
    print("pyarrow:", counts.to_pydict())
