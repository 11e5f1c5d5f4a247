import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# pytest rewrites the asserts of what brings a plugin: of all of oz, and of all of Hypothesis, for seconds.
for finder in sys.meta_path:
    getattr(finder, "_must_rewrite", set()).difference_update({"oz", "hypothesis"})

from hypothesis import HealthCheck, is_hypothesis_test, settings  # noqa: E402

from oz.logs import forget_rates  # noqa: E402
from support.sizes import size  # noqa: E402

# A job in the background of a plain shell ignores Ctrl-C, and so would the programs that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of programs. Where nothing compiled may be kept, each compiles all of oz for itself,
# which is nearly half of all that the tests of commands work.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

# It waits for a disk, which no test can tell: none takes the power away. What is no file is still an error.
os.fsync = os.fstat

# Of each property. HYPOTHESIS_PROFILE chooses a profile by name: "thorough" is for a hunt on a quiet machine.
EXAMPLES = size(10, 2_000)
# Neither a deadline nor "too slow": what either of them finds is another process that keeps the machine busy.
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
    """Let no test's lines count as too many because of those of another."""
    forget_rates()


def pytest_configure(config):
    """Compile all tests once, before each of several processes does, where that has not been done."""
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
    """Have a worker that is done take tests of another: the long ones stand side by side."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_collection_modifyitems(items):
    """Properties are tried on more examples by `tox -e heavy`."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.sized)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Have garbage be looked for among what tests make, and not among thousands of tests each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Refuse a test that leaves a signal ignored: the programs of later tests would be born ignoring it."""
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
