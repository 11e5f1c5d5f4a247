import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# pytest rewrites the asserts of each package that brings a plugin. For oz and Hypothesis this takes seconds.
for finder in sys.meta_path:
    getattr(finder, "_must_rewrite", set()).difference_update({"oz", "hypothesis"})

from hypothesis import HealthCheck, is_hypothesis_test, settings  # noqa: E402

from oz.logs import forget_rates  # noqa: E402
from support.sizes import size  # noqa: E402

# A job in the background of a plain shell ignores Ctrl-C, and so would the programs that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of programs. Without bytecode files each program compiles all of oz, which is nearly half
# of the processor time of the command tests.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

# fsync waits for the disk, and only a power failure shows its effect. fstat also fails for a bad descriptor.
os.fsync = os.fstat

# Number of examples of each property. HYPOTHESIS_PROFILE chooses a profile: "thorough" is for long runs on an idle
# machine.
EXAMPLES = size(10, 2_000)
# Deadlines and the check "too slow" fail when other processes use the machine.
settings.register_profile(
    "dev", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=EXAMPLES,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture
def directory():
    """Directory with a short path, because the path of a socket has at most 107 bytes."""
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(params=["sync", "asyncio"])
def kind(request):
    """Shell of the objects of a test."""
    return request.param


@pytest.fixture(autouse=True)
def fresh_log_rates():
    """Reset the rate limits of the logs, so that log lines of an earlier test do not suppress lines of this test."""
    forget_rates()


def pytest_configure(config):
    """Compile all tests once, so that the workers of pytest-xdist do not each compile them."""
    here = Path(__file__).parent
    are_several = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    is_done = any(here.glob("subjects/__pycache__/test_*-pytest-*"))
    if not are_several or is_done or config.args != config.getini("testpaths"):
        return
    modules = sorted(map(str, here.rglob("test_*.py")))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-qq",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
    ]
    # A module that does not compile fails later, when its tests run.
    halves = [
        subprocess.Popen([*command, *modules[at::2]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for at in range(2)
    ]
    for half in halves:
        half.wait()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Return a scheduler in which idle workers take tests of busy workers: long tests follow each other in a file."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_collection_modifyitems(items):
    """Mark the property tests as `sized`: `tox -e heavy` runs them with more examples."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.sized)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Freeze the collected tests, so that garbage collections during the run do not scan them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Fail if a test leaves a signal ignored, because the programs of later tests would inherit that."""
    result = yield
    ignored = [
        element.name
        for element in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(element) is signal.SIG_IGN
    ]
    for name in ignored:
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    assert not ignored, f"the test left {ignored} ignored"
    return result
