"""Build the source distribution and check that it has the files beside the package, for `tox -e lint`.

Usage: python tools/check_sdist.py     in a checkout, with the package `build` installed
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CARRIED = ("oz", "tests", "docs", "examples", "benchmarks", "tools")
PASSED_OVER = {"__pycache__", "_build", ".pyc", ".so"}


def wanted() -> set[str]:
    """Name the files that must be there."""
    files = [path for top in CARRIED for path in (ROOT / top).rglob("*") if path.is_file()]
    files += [
        path for path in ROOT.iterdir() if path.is_file() and path.suffix in (".md", ".ini", ".cfg", ".toml")
    ]
    return {
        str(path.relative_to(ROOT))
        for path in files
        if path.suffix not in PASSED_OVER and PASSED_OVER.isdisjoint(path.parts)
    }


def carried(directory: str) -> set[str]:
    """Build it, and name what is in it."""
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", directory, str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    [archive] = Path(directory).glob("*.tar.gz")
    with tarfile.open(archive) as content:
        return {name.partition("/")[2] for name in content.getnames()}


def main() -> None:
    """Print the missing files."""
    with tempfile.TemporaryDirectory() as directory:
        missing = sorted(wanted() - carried(directory))
    if missing:
        sys.exit("the source distribution lacks: " + ", ".join(missing) + "; see MANIFEST.in")


if __name__ == "__main__":
    main()
