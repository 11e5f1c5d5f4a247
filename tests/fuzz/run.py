"""Fuzz readers by coverage: `python tests/fuzz/run.py [SECONDS [TARGET…]]`; `tox -e heavy -- tests/fuzz` has atheris.

Each target runs for SECONDS (default: 60) in a process of its own, from the inputs in corpus/. Inputs that
reach new code are added there, one a line. It prints how many inputs were tried, and ends with 1 after a
crash, whose input is then a line too: the suite replays them all.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LONGEST = 512
SECONDS_FOR_EACH = 5
"""What takes longer than that is a finding."""
MAX_KEPT = 400
"""Inputs of one target that are kept: the shortest."""


def fuzz_in_this_process(target: str, arguments: list[str]) -> None:
    """Hand the process over to libFuzzer."""
    import atheris

    with atheris.instrument_imports(include=["oz", "tomllib"]):
        from fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
    atheris.Fuzz()


def inputs_of(target: str) -> list[bytes]:
    """Return the inputs that are kept for a target."""
    path = HERE / "corpus" / f"{target}.hex"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(target: str, inputs: set[bytes]) -> None:
    """Write the shortest of them down."""
    kept = sorted(inputs, key=lambda item: (len(item), item))[:MAX_KEPT]
    (HERE / "corpus" / f"{target}.hex").write_text("".join(f"{item.hex()}\n" for item in kept))


def contents(directory: Path) -> set[bytes]:
    """Return what its files hold."""
    return {path.read_bytes() for path in directory.iterdir()}


def fuzz(target: str, seconds: int) -> bool:
    """Fuzz a target in a process of its own; tell whether nothing was found."""
    with tempfile.TemporaryDirectory() as made:
        corpus, crashes = Path(made, "corpus"), Path(made, "crashes")
        for directory in (corpus, crashes):
            directory.mkdir()
        for number, item in enumerate(inputs_of(target)):
            (corpus / str(number)).write_bytes(item)
        options = [f"-max_len={LONGEST}", f"-timeout={SECONDS_FOR_EACH}", f"-artifact_prefix={crashes}/"]
        asked = [f"-max_total_time={seconds}", "-print_final_stats=1"]
        run = _libfuzzer(target, [*options, *asked, str(corpus)])
        found = re.search(r"number_of_executed_units: (\d+)", run.stderr)
        count = found[1] if found else "unknown"
        print(f"{target}: {count} inputs in {seconds} s, exit {run.returncode}", flush=True)
        if run.returncode:
            print(run.stderr[-3_000:], flush=True)
        keep(target, contents(corpus) | contents(crashes))
        return run.returncode == 0


def _libfuzzer(target: str, options: list[str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, __file__, "--inside", target, *options]
    return subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)


def main(arguments: list[str]) -> int:
    """Fuzz what was asked for."""
    if arguments[:1] == ["--inside"]:
        fuzz_in_this_process(arguments[1], arguments[2:])
        return 0
    from fuzz.targets import TARGETS

    seconds = int(arguments[0]) if arguments else 60
    ended_well = [fuzz(target, seconds) for target in arguments[1:] or TARGETS]
    return 0 if all(ended_well) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
