"""Write what this version leaves behind, for later versions to open: `tests/compat/VERSION`.

Usage: python tests/compat/write.py package [--at COMMIT]          oz.tar.xz, the package as the peer loads it
       python tests/compat/write.py journal NAME [--at COMMIT]     a journal, and what is in it as NAME.jsonl
       python tests/compat/write.py frames [--at COMMIT]          frames.jsonl, what sockets and nodes said
       python tests/compat/write.py checkpoint NAME [--at COMMIT]  a checkpoint of Spark's at the end of NAME

Run it in a git checkout with the extra `test`, and `spark` for a checkpoint. It writes what is kept of a
version and is not run again for one that was released. COMMIT is HEAD by default.
"""

import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

LOADED = "import oz, oz.asyncio, oz.services.forwarder, oz.services.nameserver, sys; "
LIST = LOADED + "print('\\n'.join(m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'oz'))"
START_NS = 1_790_000_000_000_000_000


def write_package(package: Path, kept: Path) -> None:
    """Pack those modules that the peer loads: all of them would be twice as much."""
    command = [sys.executable, "-c", LIST]
    listed = subprocess.run(command, cwd=package, check=True, capture_output=True, text=True)
    names = sorted(os.path.relpath(path, package) for path in listed.stdout.split())
    assert not any(name.startswith("..") for name in names), "another oz was imported"
    with (
        lzma.open(kept / "oz.tar.xz", "wb", preset=9) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in names:
            member = tarfile.TarInfo(name)
            content = (package / name).read_bytes()
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def write_journal(directory: Path) -> None:
    """Write a journal in two goes: sealed segments, one that grows, a gap and damage that was repaired."""
    from oz.journal import Journal, Record, Writer

    origin = bytes(range(16))
    for go in range(2):
        with Writer(directory, segment_bytes=5000) as writer:
            for at in range(4):
                number = 4 * go + at
                rich = Record(
                    f"a.{number}",
                    b"rich %d" % number,
                    time_ns=START_NS + number,
                    origin=origin,
                    sequence=number,
                    reply_to="inbox.1",
                    headers=b"\x81\xa5trace\xa27f",
                )
                raw = Record(b"raw.\xff", b"\0\xff", time_ns=START_NS + number)
                gap = Record.of_gap("nats:b.>", 7, origin=origin, sequence=3, time_ns=START_NS + number)
                writer.append([rich, raw, gap if number % 2 else ("a.plain", bytes(300))])
    damaged = sorted(directory.glob("*.arrow"))[1]
    content = bytearray(damaged.read_bytes())
    content[content.rindex(b"oz1 ") - 700] ^= 1
    damaged.write_bytes(content)
    Journal(directory).repair()
    for path in [*directory.glob("*.damaged"), *directory.glob("*.tmp"), *directory.glob("*.lock")]:
        path.unlink()
    with (directory.parent / f"{directory.name}.jsonl").open("w") as told:
        for record in Journal(directory).read(gaps=True):
            fields = {
                name: {"hex": value.hex()} if isinstance(value, bytes) else value
                for name, value in record._asdict().items()
            }
            told.write(json.dumps(fields) + "\n")


def write_checkpoint(journal: Path) -> None:
    """Have a streaming query read a journal, and keep where it was then."""
    import oz.spark

    spark = oz.spark.session("local[1]")
    checkpoint = journal.with_name(f"{journal.name}-checkpoint")
    shutil.rmtree(checkpoint, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        copied = shutil.copytree(journal, Path(scratch, "journal"))
        frame = spark.readStream.format("oz").option("journal", str(copied)).load()
        writing = frame.writeStream.format("parquet").option("checkpointLocation", f"{scratch}/checkpoint")
        query = writing.trigger(availableNow=True).start(f"{scratch}/rows")
        query.awaitTermination()
        shutil.copytree(Path(scratch, "checkpoint"), checkpoint, ignore=shutil.ignore_patterns(".*"))
    spark.stop()


def write_frames(kept: Path) -> None:
    """Listen to sockets, nodes, a name server and a forwarder; write what they say and what it means."""
    sys.path[:0] = [str(ROOT / "tests"), str(HERE)]
    import conversations

    from support.wire_meanings import as_bytes, of_downward, of_multicast, of_upward
    from support.wire_vectors import rows

    with (kept / "frames.jsonl").open("w") as told:
        for scene, tap in conversations.all_of_them():
            seen = set()
            for way, spoken, meaning in zip(
                ("up", "down"), tap.told(), (of_upward, of_downward), strict=True
            ):
                for frames in spoken:
                    row = {"scene": scene, "way": way, "frames": [as_bytes(one) for one in frames]}
                    line = json.dumps({**row, "means": meaning(frames)})
                    if line not in seen:
                        told.write(line + "\n")
                    seen.add(line)
        # PGM is not in every build of libzmq: these are the vectors of the format.
        for vector in rows("datagrams"):
            row = {"scene": "multicast", "way": "multicast", "frames": [{"hex": vector["hex"]}]}
            told.write(json.dumps({**row, "means": of_multicast([bytes.fromhex(vector["hex"])])}) + "\n")


def main() -> None:
    """Write what is asked for, with the package of a commit."""
    what, *rest = sys.argv[1:] or [""]
    if what not in ("package", "journal", "frames", "checkpoint"):
        sys.exit(__doc__)
    if "OZ_COMPAT_PACKAGE" not in os.environ:
        commit = rest[rest.index("--at") + 1] if "--at" in rest else "HEAD"
        archived = subprocess.run(["git", "archive", commit, "oz"], cwd=ROOT, check=True, capture_output=True)
        with tempfile.TemporaryDirectory() as directory:
            with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as whole:
                whole.extractall(directory, filter="data")
            named = subprocess.run(
                ["git", "rev-parse", commit], cwd=ROOT, check=True, capture_output=True, text=True
            )
            there = {
                "OZ_COMPAT_PACKAGE": directory,
                "OZ_COMPAT_COMMIT": named.stdout,
                "PYTHONPATH": directory,
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            command = [sys.executable, __file__, *sys.argv[1:]]
            subprocess.run(command, check=True, env=os.environ | there, cwd=directory)
        return
    import oz

    kept = HERE / vars(oz).get("__version__", "0.1.0")
    kept.mkdir(exist_ok=True)
    if what == "package":
        write_package(Path(os.environ["OZ_COMPAT_PACKAGE"]), kept)
        (kept / "oz.commit").write_text(os.environ["OZ_COMPAT_COMMIT"])
    elif what == "frames":
        write_frames(kept)
    elif what == "journal":
        shutil.rmtree(kept / rest[0], ignore_errors=True)
        write_journal(kept / rest[0])
    else:
        write_checkpoint(kept / rest[0])


if __name__ == "__main__":
    main()
