"""Build the source distribution and the wheels twice, and see that both times give the same bytes.

Usage: python tools/release.py [DIRECTORY]     in a checkout, with the packages `build` and `twine`

Into the directory, `dist` unless told otherwise, come the source distribution, the wheel of this Python with
the compiled part, and the pure one, which is for all others. `.ci/cibuildwheel.toml` is for other systems.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _source_date() -> str:
    """Return the time that all files are given: of the commit, or of the changelog outside of git."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or str(int((ROOT / "CHANGELOG.md").stat().st_mtime))


def _level(archive: Path, date: int) -> None:
    """Write a source distribution anew, without times and owners of this machine."""
    plain = archive.with_suffix("")
    with tarfile.open(archive) as old, tarfile.open(plain, "w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = date, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with archive.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=date) as packed:
        packed.write(plain.read_bytes())
    plain.unlink()


def _build(into: str, date: str) -> dict[str, str]:
    """Build all; return the digest of each file by its name."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": date}
    build = [sys.executable, "-m", "build", "--outdir", into]
    subprocess.run([*build, "--sdist", str(ROOT)], env=environment, check=True, stdout=subprocess.DEVNULL)
    [archive] = Path(into).glob("*.tar.gz")
    _level(archive, int(date))
    with tempfile.TemporaryDirectory() as place:
        # The wheels come from what is distributed.
        shutil.unpack_archive(archive, place, filter="data")
        [tree] = Path(place).iterdir()
        for choice in ("0", "require"):
            command = [*build, "--wheel", str(tree)]
            chosen = {**environment, "OZ_COMPILED": choice}
            subprocess.run(command, env=chosen, check=True, stdout=subprocess.DEVNULL)
            shutil.rmtree(tree / "build")
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(Path(into).iterdir())}


def main(directory: str = "dist") -> None:
    """Build twice, compare, check, and keep."""
    date = _source_date()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        digests = _build(first, date)
        again = _build(second, date)
        if differing := sorted(name for name in digests if digests[name] != again.get(name)):
            sys.exit(f"not the same bytes twice: {', '.join(differing)}")
        files = [str(Path(first, name)) for name in digests]
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
        Path(directory).mkdir(exist_ok=True)
        for file in files:
            shutil.copy(file, directory)
    for name, digest in digests.items():
        print(digest, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
