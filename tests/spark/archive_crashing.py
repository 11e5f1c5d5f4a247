"""Kill whoever publishes to a lake again and again, and look at what readers see all the while.

    PYTHONPATH=tests python -m spark.archive_crashing DIRECTORY ROUNDS SEED

In each round a child process opens the lake, publishes steps and compacts folders (with files that pyarrow
makes in Spark's place), and is killed with SIGKILL by itself before or after some call that changes files.
This process reads the lake meanwhile, as pyarrow reads any directory: no record may be there twice, and none
may leave.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from oz.spark.jobs.archiving import compaction, exchange, publishing
from oz.spark.jobs.archiving.lake import opened
from oz.spark.jobs.archiving.layout import LakeLayout
from oz.spark.jobs.archiving.manifest import LakeManifest, load
from oz.spark.jobs.archiving.staging import staged_files
from spark import archive_lakes

END = 3_000
LAYOUT = LakeLayout(file_bytes=20_000)
CHANGING = ("rename", "fsync", "mkdir", "unlink", "link", "rmdir")


def rows(first, end):
    at = range(first, end)
    return pa.table(
        {"offset": at, "subject": [f"s{one % 3}" for one in at], "payload": [b"%d" % one for one in at]}
    )


def write(table, staging, folder):
    path = staging / folder / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table, path)
    (path.parent / ".part-0.parquet.crc").write_bytes(b"crc")


def step(lake, chance):
    """Publish the next records."""
    first = lake.manifest.end_offset
    end = min(END, first + chance.randrange(1, 300))
    staging = lake.staging.new()
    table = rows(first, end)
    for token in range(3):
        mine = table.filter(pa.compute.equal(table["subject"], f"s{token}"))
        if len(mine):
            write(mine, staging, f"day=2026-01-0{1 + first // 1000}/first_token=s{token}")
    then = LakeManifest("id", ".", 0, end)
    publishing.publish(lake.directory, lake.manifest, staging, staged_files(staging), then)


def merged_by_arrow(_spark, lake, batch, staging):
    for merge in batch:
        write(pa.concat_tables(pq.read_table(path) for path in merge.small), staging, merge.folder)


def publish_all(directory, chance):
    """Bring the lake to its end, compacting now and then."""
    compaction._write = merged_by_arrow
    with opened(directory, None, "id", 0, LAYOUT) as lake:
        while lake.manifest.end_offset < END:
            step(lake, chance)
            if chance.random() < 0.3:
                list(compaction.compact(None, lake))
        list(compaction.compact(None, lake))


def kill_in(calls, chance):
    """Kill this process before or after the given number of calls."""
    left = calls

    def wrapped(real):
        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left <= 0:
                if chance.random() < 0.5:
                    real(*arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CHANGING:
        setattr(os, name, wrapped(getattr(os, name)))
    publishing.exchange = wrapped(exchange.exchange)


def in_child(directory, chance, calls):
    """Publish in a child; gives its process number."""
    child = os.fork()
    if child:
        return child
    try:
        if calls:
            kill_in(calls, chance)
        publish_all(directory, chance)
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def look(directory, seen):
    """Read the lake; everything that was there before must be there, and nothing twice."""
    if not any(directory.glob("day=*/*/*.parquet")):
        assert not seen
        return seen
    try:
        found = archive_lakes.offsets(directory, threads=False)
    except FileNotFoundError:  # listed before an exchange, and opened after it
        return seen
    assert len(found) == len(set(found)), "a record is there twice"
    assert seen <= set(found), f"{len(seen - set(found))} records have left"
    return set(found)


def one_round(directory, chance, seen):
    """One child, killed or not; gives whether it was killed, and what readers see."""
    child = in_child(directory, chance, chance.randrange(1, 160))
    ends = time.monotonic() + 300
    looks = 0
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < ends, "a child takes too long"
        seen = look(directory, seen)
        looks += 1
    assert ended[1] in (0, signal.SIGKILL), f"a child ended with {ended[1]}"
    return ended[1] != 0, look(directory, seen), looks


def main(directory, rounds, seed):
    chance = random.Random(seed)
    killed = looks = lakes = 0
    for number in range(rounds):
        lake = directory / f"lake{lakes}"
        if not lake.exists():
            seen = set()
        was_killed, seen, looked = one_round(lake, random.Random(f"{seed} {number}"), seen)
        killed += was_killed
        looks += looked
        if not was_killed or number == rounds - 1 or chance.random() < 0.02:
            finish(lake)
            lakes += 1
    print(f"killed {killed} of {rounds}, looked {looks} times, {lakes} lakes")


def finish(lake):
    """Bring it to its end, and look at every record."""
    child = in_child(lake, random.Random(1), 0)
    assert os.waitpid(child, 0)[1] == 0
    table = archive_lakes.read(lake, threads=False).sort_by("offset")
    assert table["offset"].to_pylist() == list(range(END))
    assert (
        table.select(["subject", "payload"]).to_pydict()
        == rows(0, END).select(["subject", "payload"]).to_pydict()
    )
    known = load(lake)
    assert known.end_offset == END
    assert known.pending is None


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
