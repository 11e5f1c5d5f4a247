"""`oz spark` without its extra, and commands of journals without theirs. Other tests are in tests/spark."""

import sys

import pytest

from support.cases import each

COMMANDS = ("archive", "report")
LOADED = ("oz.journal", "oz.spark", "oz.services.recorder", "oz.services.replayer")


@pytest.fixture
def without(oz):
    """Function that runs a command while modules cannot be imported."""

    def run(modules, *words):
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in sys.modules if name.startswith(LOADED)]:
                patch.delitem(sys.modules, name)
            for name in modules:
                patch.setitem(sys.modules, name, None)
            return oz(*words)

    return run


@each("command", [(), ("archive",), ("report",)])
def test_without_the_extra_the_help_works(without, command):
    ended = without(["pyspark", "pyarrow"], "spark", *command, "--help")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "Examples:" in ended.stdout
    assert ended.stdout.count("oz spark") >= 2
    assert command or all(f"\n  {name} " in ended.stdout for name in COMMANDS)


@each(
    ("words", "module", "extra"),
    [
        (("spark", "archive", "journal", "lake"), "pyspark", "spark"),
        (("spark", "archive", "journal", "lake"), "pyarrow", "spark"),
        (("record", "a", "--journal", "x"), "pyarrow", "journal"),
        (("replay", "x"), "pyarrow", "journal"),
        (("journal", "info", "x"), "pyarrow", "journal"),
    ],
)
def test_without_an_extra_the_error_names_it(without, tmp_path, monkeypatch, words, module, extra):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "journal").mkdir(exist_ok=True)
    ended = without([module], *words)
    assert (ended.exit_code, ended.stdout) == (1, "")
    said = f"oz.{extra} needs {module}, which is not installed; in a checkout: pip install '.[{extra}]'"
    assert ended.stderr.partition(": ")[2] == f"{said}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_describes_the_master(oz, command):
    text = oz("spark", command, "--help").stdout
    assert "--master URL" in text
    assert "or local[2]" in " ".join(text.split())
    assert "--conf NAME=VALUE" in text
