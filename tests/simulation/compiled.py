"""The same with a compiled model of ZeroMQ: `python -m simulation.compiled --seeds 10000`.

mypyc compiles the modules of `oz.testing` through which each message goes, into `build`. What they do is the
same, and a run is a tenth shorter. Nothing else finds them there, and oz itself is never compiled so.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from sysconfig import get_config_var

ROOT = Path(__file__).resolve().parents[2]

NAMES = "clock", "connections", "network", "pipes", "publishing", "queues", "sockets", "topics", "wires"
"""Modules that nothing in a run changes."""

OPEN = "sockets", "class Socket:"
"""The one class of those of which others are derived, which mypyc has to be told."""

COMPILE = """
import sys
from mypyc.build import mypycify
from setuptools import setup

place, *sources = sys.argv[1:]
arguments = ["--quiet", "build_ext", "--build-lib", place, "--build-temp", f"{place}/c"]
made = mypycify(["--ignore-missing-imports", *sources], target_dir=f"{place}/c")
setup(name="model", script_args=arguments, ext_modules=made)
"""


class Compiled:
    """Finds the compiled modules before those that are not."""

    def __init__(self, place):
        self._place = place

    def find_spec(self, name, path=None, target=None):
        package, _, last = name.rpartition(".")
        is_shared = not package and name.endswith("__mypyc")
        if not is_shared and (package != "oz.testing" or last not in NAMES):
            return None
        file = self._place.joinpath(*name.split(".")[:-1], last + get_config_var("EXT_SUFFIX"))
        return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, str(file)))


def _copy(place):
    """Copy oz, and tell mypyc of what is derived; return the sources that are compiled."""
    shutil.copytree(ROOT / "oz", place / "oz", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.[ch]"))
    sources = {name: place / "oz" / "testing" / f"{name}.py" for name in NAMES}
    name, kind = OPEN
    text = sources[name].read_text().replace("import zmq", "import mypy_extensions\nimport zmq", 1)
    told = f"@mypy_extensions.mypyc_attr(allow_interpreted_subclasses=True)\n{kind}"
    sources[name].write_text(text.replace(kind, told))
    return sources.values()


def build():
    """Compile what has changed since it was compiled last; return where the result is."""
    sources = [ROOT / "oz" / "testing" / f"{name}.py" for name in NAMES]
    read = b"".join(one.read_bytes() for one in (Path(__file__), *sources))
    known = hashlib.sha256(read).hexdigest()[:16]
    place = ROOT / "build" / f"model-{sys.implementation.cache_tag}-{known}"
    if not place.is_dir():
        making = place.with_suffix(f".{os.getpid()}")
        making.mkdir(parents=True)
        copy = making / "source"
        arguments = [sys.executable, "-c", COMPILE, str(making), *map(str, _copy(copy))]
        subprocess.run(arguments, cwd=making, env={**os.environ, "MYPYPATH": str(copy)}, check=True)
        shutil.rmtree(copy)
        making.rename(place)
    return place


if __name__ == "__main__":
    try:
        sys.meta_path.insert(0, Compiled(build()))
    except subprocess.CalledProcessError:
        print("the model is not compiled: that takes mypy, setuptools and a C compiler", file=sys.stderr)
    sys.argv[0] = "simulation"
    runpy.run_module("simulation", run_name="__main__", alter_sys=True)
