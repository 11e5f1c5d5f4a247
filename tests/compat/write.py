"""Write what this version leaves behind, for later versions to open: `tests/compat/VERSION`.

Usage: python tests/compat/write.py package [COMMIT]     oz.tar.xz, the package of that commit or HEAD

Run it in a checkout with the extra `test`, and only for the version that the code has.
"""

import io
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from oz.version import VERSION

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VERSIONED = HERE / VERSION

LOADED = "import oz, oz.asyncio, oz.services.forwarder, oz.services.nameserver, sys, json, runpy; "
LIST = LOADED + "print('\\n'.join(m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'oz'))"


def write_package(commit: str) -> None:
    """Pack those modules of a commit that the peer loads: all of them would be twice as much."""
    archived = subprocess.run(["git", "archive", commit, "oz"], cwd=ROOT, check=True, capture_output=True)
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as whole:
            whole.extractall(directory, filter="data")
        there = {**os.environ, "PYTHONPATH": directory, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", LIST]
        listed = subprocess.run(command, env=there, cwd=directory, check=True, capture_output=True, text=True)
        names = sorted(os.path.relpath(path, directory) for path in listed.stdout.split())
        assert not any(name.startswith("..") for name in names), "another oz was imported"
        VERSIONED.mkdir(exist_ok=True)
        with (
            lzma.open(VERSIONED / "oz.tar.xz", "wb", preset=9) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name in names:
                member = tarfile.TarInfo(name)
                content = Path(directory, name).read_bytes()
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    named = subprocess.run(["git", "rev-parse", commit], cwd=ROOT, check=True, capture_output=True, text=True)
    (VERSIONED / "oz.commit").write_text(named.stdout)


def main() -> None:
    """Write what is asked for."""
    match sys.argv[1:]:
        case ["package", *commit]:
            write_package(*commit or ["HEAD"])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
