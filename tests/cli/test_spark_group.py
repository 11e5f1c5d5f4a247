"""`oz spark`: the group and its common options. The commands have their tests in tests/spark."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from support.scripts import started
from support.waiting import DEADLINE

COMMANDS = ("archive", "report")


def without(modules, *arguments):
    """Run `oz` in a process in which some modules cannot be imported."""
    program = (
        "import sys\n"
        "for name in list(sys.modules):\n"
        "    if name.startswith(('oz.journal', 'pyarrow')): del sys.modules[name]\n"
        f"for name in {modules!r}: sys.modules[name] = None\n"
        "from oz.cli import main; main(prog_name='oz')\n"
    )
    with started("-c", program, *arguments) as process:
        out, err = process.communicate(timeout=DEADLINE)
    return SimpleNamespace(returncode=process.returncode, stdout=out, stderr=err)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_needs_neither_pyspark_nor_pyarrow(command):
    ended = without(["pyspark", "pyarrow"], "spark", *command, "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Examples:" in ended.stdout
    assert ended.stdout.count("oz spark") >= 2


def test_the_group_lists_its_commands_and_loads_none_for_the_main_help():
    listed = without([], "spark", "--help").stdout
    assert all(f"\n  {name} " in listed for name in COMMANDS)
    loaded = "[name for name in sys.modules if name.startswith(('oz.cli.spark.', 'pyspark', 'pyarrow'))]"
    program = f"import sys, atexit; atexit.register(lambda: print({loaded})); sys.argv = ['oz', '--help']\n"
    command = [sys.executable, "-c", f"{program}from oz.cli import main; main()"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_describes_the_master(oz, command):
    text = oz("spark", command, "--help").stdout
    assert "--master URL" in text
    assert "or local[2]" in " ".join(text.split())
    assert "--conf NAME=VALUE" in text


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra_one_line_says_what_to_install(tmp_path, missing):
    (tmp_path / "journal").mkdir()
    ended = without([missing], "spark", "archive", str(tmp_path / "journal"), str(tmp_path / "lake"))
    said = f"oz.spark needs {missing}, which is not installed; in a checkout: pip install '.[spark]'"
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"oz spark: {said}\n" or ended.stderr == f"oz spark archive: {said}\n"
