"""Run pyzmq's own tests with oz's drop-in sockets for SUB, for PUB and for both.

    python tools/pyzmq_suite/run.py [--scratch DIRECTORY] [FILE ...]

The tests are those of the installed release: they come from its source distribution, by pip. Each file
runs in a process of its own; a test that hangs or ends the process is a failure, and the others go on
without it. Some of pyzmq's tests sleep instead of waiting, so that a test that fails runs again alone.
Only a test that fails each time has failed.

`differences.toml` lists the tests that pass with pyzmq's sockets and fail with oz's, with the reason: at most
three for each run. The exit status is 1 when another test fails, when a listed test passes, and when
`docs/dropin.md` does not name a listed test. It is 1 too when a run made no drop-in socket. Other tests that
fail are run with pyzmq's own sockets too, and the output has both results.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import zmq

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "dropin.md"
DIFFERENCES = HERE / "differences.toml"
FILES = [
    *("socket", "pubsub", "poll", "monitor", "context", "asyncio"),
    *("multipart", "zmqstream", "log", "message", "device"),
]
PLAIN = "pyzmq"
REPLACING = {"SUB": "SUB", "PUB": "PUB", "both": "PUB SUB"}
"""What each run replaces."""
VARIANTS = {PLAIN: "", **REPLACING}
"""The same, and pyzmq as it is."""
TEST_SECONDS = 15
SILENT_SECONDS = 20
END = "the end of the process"
"""What `replacing` calls what comes after the last test."""
TRIES = 5
MAX_DIFFERENCES = 3
AT_ONCE = 4
"""More than processors: most of these tests sleep."""
# Two of its tests need 4 GiB of memory, and use no PUB and no SUB.
PYTEST = ["-q", "-p", "replacing", "-p", "no:cacheprovider", "-m", "not large", "--timeout-method=thread"]


@dataclass
class Result:
    """How a test ended: `passed`, `failed`, `skipped`, `hung` or `died`; and its drop-in sockets."""

    outcome: str
    text: str = ""
    sockets: int = 0
    earlier: list[str] = field(default_factory=list)

    @property
    def is_bad(self) -> bool:
        """Whether it counts as a failure."""
        return self.outcome not in ("passed", "skipped")


def unpack(scratch: Path) -> Path:
    """Fetch the source of the installed pyzmq, and give the directory that holds its tests."""
    release = zmq.__version__
    archive = scratch / f"pyzmq-{release}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "pyzmq"]
        subprocess.run([*command, "-d", str(scratch), f"pyzmq=={release}"], check=True)
    suite = scratch / "suite" / f"pyzmq-{release}"
    with tarfile.open(archive) as tar:
        wanted = [
            member
            for member in tar.getmembers()
            if member.name.startswith((f"pyzmq-{release}/tests/", f"pyzmq-{release}/pytest.ini"))
        ]
        tar.extractall(scratch / "suite", members=wanted, filter="data")
    return suite


def run_once(
    suite: Path, scratch: Path, variant: str, tests: list[str], without: Iterable[str]
) -> dict[str, Result]:
    """Run tests in one process until its end or its deadline, and return the results of the tests that began."""
    progress = scratch / f"progress-{variant}-{abs(hash((*tests, *without)))}"
    progress.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "OZ_REPLACES": VARIANTS[variant],
        "OZ_PROGRESS": str(progress),
        "PYTHONPATH": str(HERE),
    }
    deselected = [f"--deselect={test}" for test in without]
    command = [sys.executable, "-m", "pytest", *PYTEST, f"--timeout={TEST_SECONDS}", *deselected, *tests]
    process = subprocess.Popen(
        command,
        cwd=suite,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    status, output = wait(process, progress)
    lines = progress.read_text("utf-8").splitlines() if progress.exists() else []
    results = read(map(json.loads, lines), status, output)
    if not results and status not in (0, 5):
        raise SystemExit(f"pytest gave {status} for {' '.join(tests)}:\n{output}")
    return results


def wait(process: subprocess.Popen[str], progress: Path) -> tuple[int, str]:
    """Wait for a process, for as long as tests end in it; then kill it. Give its status and its output."""
    size = -1
    while True:
        try:
            output, _ = process.communicate(timeout=SILENT_SECONDS)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            told = progress.stat().st_size if progress.exists() else 0
            if told == size:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return process.returncode, output
            size = told


def read(events: Iterable[dict[str, object]], status: int, output: str) -> dict[str, Result]:
    """Return the results of a process by its progress file, its exit status and its output."""
    results: dict[str, Result] = {}
    running = None
    for event in events:
        test = str(event["test"])
        if "outcome" not in event:
            running = None if event["is_over"] else test
            if test in results:
                results[test].sockets = int(str(event.get("sockets", 0)))
            continue
        known = results.setdefault(test, Result("passed"))
        if event["outcome"] != "passed":
            known.outcome, known.text = str(event["outcome"]), known.text + str(event["text"])
    if running == END and status >= 0:
        running = None
    if running is not None:
        # pytest-timeout ends the process with 1, our own deadline with SIGKILL.
        outcome = "hung" if status in (1, -signal.SIGKILL) else "died"
        results[running] = Result(outcome, f"status {status}\n{output[-6_000:]}")
    return results


def run_file(suite: Path, scratch: Path, variant: str, name: str) -> dict[str, Result]:
    """Run a file to its end, however many of its tests end the process."""
    path = f"tests/test_{name}.py"
    results: dict[str, Result] = {}
    while True:
        more = run_once(suite, scratch, variant, [path], results)
        results |= more
        if not any(result.outcome in ("hung", "died") for test, result in more.items() if test != END):
            break
    return {f"{path}: {END}" if test == END else test: result for test, result in results.items()}


def run_again(suite: Path, scratch: Path, variant: str, results: dict[str, Result]) -> None:
    """Run failed tests again, when nothing else runs: some log or publish before a subscription arrives."""
    for test, result in results.items():
        while "::" in test and result.outcome in ("failed", "hung") and len(result.earlier) < TRIES - 1:
            result.earlier.append(result.outcome)
            again = run_once(suite, scratch, variant, [f"tests/{test}"], [])[f"tests/{test}"]
            result.outcome, result.text = again.outcome, again.text or result.text


def run_all(suite: Path, scratch: Path, names: list[str]) -> dict[str, dict[str, Result]]:
    """Run every file of every variant, a few at once."""
    # Some bind to a port of their own: no file may run twice at the same time.
    locks = {name: Lock() for name in names}
    # Tests of one file are far apart, so that no test waits for another.
    jobs = [(variant, name) for variant in REPLACING for name in names]

    def work(job: tuple[str, str]) -> dict[str, Result]:
        with locks[job[1]]:
            return run_file(suite, scratch, *job)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(work, jobs)
    results: dict[str, dict[str, Result]] = {variant: {} for variant in REPLACING}
    for (variant, _), outcome in zip(jobs, outcomes, strict=True):
        results[variant] |= {test.removeprefix("tests/"): result for test, result in outcome.items()}
    for variant, outcomes in results.items():
        run_again(suite, scratch, variant, outcomes)
    return results


def expected(names: list[str]) -> dict[str, dict[str, str]]:
    """Read what each variant may fail, and why."""
    table: dict[str, dict[str, str]] = {variant: {} for variant in REPLACING}
    for entry in tomllib.loads(DIFFERENCES.read_text("utf-8"))["difference"]:
        if entry["test"].split(".")[0].removeprefix("test_") in names:
            for variant in entry["replaced"]:
                table[variant][entry["test"]] = entry["reason"]
    return table


def with_pyzmq(suite: Path, scratch: Path, test: str) -> str:
    """Run a test with pyzmq's own sockets, and say how it ended."""
    if test.endswith(END):
        return "not known"
    path = f"tests/{test}"
    return run_once(suite, scratch, PLAIN, [path], [])[path].outcome


def complaints(
    results: dict[str, dict[str, Result]],
    reasons: dict[str, dict[str, str]],
    plainly: Callable[[str], str],
) -> list[str]:
    """Return the differences to the expected results. `plainly` returns the result of a test without oz."""
    said = []
    page = PAGE.read_text("utf-8")
    for variant, known in reasons.items():
        if len(known) > MAX_DIFFERENCES:
            said.append(f"{variant} replaced: {len(known)} differences, more than {MAX_DIFFERENCES}")
        if not any(result.sockets for result in results[variant].values()):
            said.append(f"{variant} replaced: no drop-in socket was made")
        for test, result in results[variant].items():
            if result.is_bad and test not in known:
                how = f"{result.outcome}, with pyzmq's sockets {plainly(test)}"
                said.append(f"{variant} replaced: {test} {how}\n{result.text}")
        said += [
            f"{variant} replaced: {test} passes now" for test in known if not results[variant][test].is_bad
        ]
        said += [f"{PAGE.name} does not name {test}" for test in known if test.split("::")[-1] not in page]
    return said


def main() -> int:
    """Run, print a line for each run and each difference, and give the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, default=Path("build") / "pyzmq-suite")
    parser.add_argument(
        "files", nargs="*", choices=[[], *FILES], help="files of its tests, without test_ and .py"
    )
    options = parser.parse_args()
    scratch = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    names = options.files or FILES
    suite = unpack(scratch)
    results = run_all(suite, scratch, names)
    for variant, outcomes in results.items():
        bad = {test: result for test, result in outcomes.items() if result.is_bad}
        passed = sum(result.outcome == "passed" for result in outcomes.values())
        skipped = len(outcomes) - passed - len(bad)
        sockets = sum(result.sockets for result in outcomes.values())
        users = sum(result.sockets > 0 for result in outcomes.values())
        print(
            f"{variant:5}: {passed + len(bad)} ran, {passed} passed, {len(bad)} failed, {skipped} skipped; "
            f"{users} tests made {sockets} drop-in sockets"
        )
        for test, result in bad.items():
            print(f"       {test} {result.outcome}")
        for test, result in outcomes.items():
            if result.earlier and not result.is_bad:
                print(f"       {test} {', '.join(result.earlier)}, then {result.outcome}")
    said = complaints(results, expected(names), lambda test: with_pyzmq(suite, scratch, test))
    print("\n".join(said) or "as expected")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
