"""How much of what a subscriber delivers is left when it records, with `sync="batch"`.

    python benchmarks/recording.py [--seconds 60] [--rounds 6] [--directory DIR]

For each filtering a subscriber takes messages of 100 bytes and drops them, then a recorder takes the same and
writes them, in turn, so that both meet the same machine; `--seconds` is how long each is measured in all. The
publisher waits for whoever is slow. What the disk takes is measured in between: plain sequential writes of as
many bytes as a commit has, each made durable. The directory should be on the disk that is meant.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import machine

import oz
from oz.services.recorder import Recorder

SUBJECTS = [f"md.{market}.{symbol}" for market in range(40) for symbol in range(25)]
ROW_BYTES = 165
"""What a record of 100 bytes takes in a stream, with all columns."""

WANTED = 0.7
_TURN = 1000


def publish(pipe: Connection, seconds: float) -> None:
    """Publish for so long, waiting for whoever is slow; tells the endpoint first, and the number last."""
    chance = random.Random(1)
    payloads = [chance.randbytes(100) for _ in range(_TURN)]
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub:
        pipe.send(pub.endpoint)
        pub.wait_for_subscribers(timeout=60)
        ends, count = time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            for subject, payload in zip(SUBJECTS, payloads, strict=True):
                pub.publish(subject, payload)
            count += _TURN
        pub.flush()
        pipe.send(count)
        pipe.recv()


def drop(pipe: Connection, endpoint: str, filtering: str, count: Connection) -> None:
    """Receive and drop; sends messages, seconds and processor seconds."""
    with oz.Subscriber(endpoint, filtering=filtering) as sub:
        sub.subscribe("md.>")
        got = len(sub.receive_many(timeout=60))
        began, used = time.perf_counter(), time.process_time()
        expected = None
        while got != expected:
            if expected is None and count.poll():
                expected = count.recv()
            try:
                got += len(sub.receive_many(timeout=0.05))
            except oz.Timeout:
                continue
        pipe.send((got, time.perf_counter() - began, time.process_time() - used, 0, 0.0))


def record(pipe: Connection, endpoint: str, filtering: str, count: Connection, directory: str) -> None:
    """Receive and record; also sends the number of commits, and the seconds that closing took."""
    began = used = 0.0
    expected = None
    with Recorder(directory, "md.>", source=endpoint, subscriber={"filtering": filtering}) as recorder:

        def look() -> None:
            nonlocal began, used, expected
            if not began and recorder.pending + recorder.stats.recorded:
                began, used = time.perf_counter(), time.process_time()
            if expected is None and count.poll():
                expected = count.recv()
            if recorder.stats.recorded == expected:
                recorder.stop()

        recorder.run(look)
        stats = recorder.stats
        done = stats.recorded, time.perf_counter() - began, time.process_time() - used, stats.commits
        closing = time.perf_counter()
    pipe.send((*done, time.perf_counter() - closing))


def run(filtering: str, seconds: float, directory: Path | None) -> tuple[int, float, float, int, float]:
    """Let a publisher and a subscriber work in processes of their own."""
    here, there = multiprocessing.Pipe()
    mine, its = multiprocessing.Pipe()
    counts, counted = multiprocessing.Pipe()
    publisher = multiprocessing.Process(target=publish, args=(there, seconds))
    publisher.start()
    endpoint = here.recv()
    target, extra = (drop, ()) if directory is None else (record, (str(directory),))
    subscriber = multiprocessing.Process(target=target, args=(its, endpoint, filtering, counted, *extra))
    subscriber.start()
    counts.send(here.recv())
    result = mine.recv()
    here.send("done")
    subscriber.join()
    publisher.join()
    return result


def disk(directory: Path, seconds: float, size: int) -> float:
    """Write pieces of a size one after another, each durable; records a second that would be."""
    piece, written = random.randbytes(size), 0
    descriptor = os.open(directory / "plain", os.O_WRONLY | os.O_CREAT)
    began = time.perf_counter()
    while (taken := time.perf_counter() - began) < seconds:
        os.write(descriptor, piece)
        os.fsync(descriptor)
        written += size
    os.close(descriptor)
    (directory / "plain").unlink()
    return written / ROW_BYTES / taken


def measure(filtering: str, seconds: float, rounds: int, where: Path) -> None:
    """Measure one filtering, and print a line for each round and what they come to."""
    print(f"\n{filtering}: messages/s, {rounds} rounds of {seconds / rounds:g} s each")
    print("  dropped  recorded  share    disk  processor µs a message  load")
    rows = []
    for _ in range(rounds):
        plain = run(filtering, seconds / rounds, None)
        recorded = run(filtering, seconds / rounds, where / "journal")
        shutil.rmtree(where / "journal")
        size = max(4096, recorded[0] * ROW_BYTES // max(1, recorded[3]))
        takes = disk(where, min(2.0, seconds / rounds), size)
        rates = plain[0] / plain[1], recorded[0] / recorded[1]
        rows.append((*rates, takes, recorded[4]))
        costs = f"{plain[2] / plain[0] * 1e6:.2f} and {recorded[2] / recorded[0] * 1e6:.2f}"
        print(f"{rates[0]:9,.0f} {rates[1]:9,.0f} {rates[1] / rates[0]:6.2f} {takes:9,.0f}"
              f"  {costs:>22}  {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    shares = [row[1] / row[0] for row in rows]
    dropped, kept, takes, closing = (statistics.median(column) for column in zip(*rows, strict=True))
    least = min(WANTED * dropped, WANTED * takes)
    print(f"share: {machine.spread(shares)}; wanted {least:,.0f}/s, the lesser of {WANTED} of both: "
          f"{'held' if kept >= least else 'NOT held'}; closing took {closing:.2f} s")  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Measure both filterings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for each side of each filtering")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--directory", type=Path, help="where to record")
    parser.add_argument("--filtering", choices=["prefix", "publisher"], action="append")
    given = parser.parse_args(arguments)
    print(machine.describe())
    with tempfile.TemporaryDirectory(dir=given.directory) as where:
        for filtering in given.filtering or ["prefix", "publisher"]:
            measure(filtering, given.seconds, given.rounds, Path(where))


if __name__ == "__main__":
    main()
