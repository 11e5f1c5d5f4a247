"""`oz spark` without its extra, and commands of journals without theirs. Other tests are in tests/spark."""

import json

import pytest

from support import scripts

COMMANDS = ("archive", "report")

PROGRAM = """
import json, sys
from click.testing import CliRunner
from oz.cli import main

found = []
for missing, words in json.loads(sys.argv[1]):
    for name in [name for name in sys.modules if name.startswith(("oz.journal", "oz.spark", "pyarrow", "pyspark"))]:
        del sys.modules[name]
    for name in missing:
        sys.modules[name] = None
    ran = CliRunner().invoke(main, words, prog_name="oz")
    found.append([ran.exit_code, ran.stdout, ran.stderr])
print(json.dumps(found))
"""


def without(*commands):
    """Run commands in a process in which some modules cannot be imported; return exit code, output and errors."""
    return json.loads(scripts.run("-c", PROGRAM, json.dumps(commands)))


def test_without_the_extras_the_help_works_and_the_error_names_the_extra(tmp_path):
    (tmp_path / "journal").mkdir()
    both, archive = ["pyspark", "pyarrow"], ["spark", "archive", f"{tmp_path}/journal", f"{tmp_path}/lake"]
    helps = [["spark", *command, "--help"] for command in ([], ["archive"], ["report"])]
    journals = [["record", "a", "--journal", "x"], ["replay", "x"], ["journal", "info", "x"]]
    commands = [*((both, words) for words in helps), (["pyspark"], archive), (["pyarrow"], archive)]
    found = without(*commands, *((["pyarrow"], words) for words in journals))
    for code, out, err in found[:3]:
        assert (code, err) == (0, "")
        assert "Examples:" in out
        assert out.count("oz spark") >= 2
    assert all(f"\n  {name} " in found[0][1] for name in COMMANDS)
    for missing, (code, out, err) in zip(("pyspark", "pyarrow"), found[3:5], strict=True):
        assert (code, out) == (1, "")
        said = f"oz.spark needs {missing}, which is not installed; in a checkout: pip install '.[spark]'"
        assert err.partition(": ")[2] == f"{said}\n"
    for code, _, err in found[5:]:
        assert code == 1
        [line] = err.splitlines()
        assert "oz.journal needs pyarrow" in line
        assert "pip install '.[journal]'" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_help_describes_the_master(oz, command):
    text = oz("spark", command, "--help").stdout
    assert "--master URL" in text
    assert "or local[2]" in " ".join(text.split())
    assert "--conf NAME=VALUE" in text
