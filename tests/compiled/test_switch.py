"""`OZ_COMPILED` says whether the compiled part runs, and `oz doctor` says why it does not."""

import importlib
import subprocess
import sys

import pytest

import oz
from oz import compiled, doctor


def load(monkeypatch, choice, error=None):
    """Load the compiled part anew, where importing it fails or does not."""

    def import_module(name):
        if error is not None:
            raise error
        return name

    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setenv("OZ_COMPILED", choice)
    return compiled._load()


@pytest.mark.parametrize("choice", ["", "1", "require"])
def test_it_runs_where_it_is_there(monkeypatch, choice):
    assert load(monkeypatch, choice) == ("oz.compiled._hot", "")


def test_it_does_not_run_where_it_is_switched_off(monkeypatch):
    assert load(monkeypatch, "0") == (None, "switched off by OZ_COMPILED=0")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("no"), "not built"),
        (ImportError("of another libc"), "does not load: of another libc"),
    ],
)
def test_a_missing_compiled_part_has_a_reason_or_is_refused(monkeypatch, error, reason):
    for choice in ("", "1"):
        hot, why = load(monkeypatch, choice, error)
        assert hot is None
        assert reason in why
    with pytest.raises(ImportError, match=f"OZ_COMPILED=require, but.*{reason}"):
        load(monkeypatch, "require", error)


def test_any_other_value_is_refused_by_name(monkeypatch):
    with pytest.raises(ImportError, match="one of 0, 1, require, not 'yes'"):
        load(monkeypatch, "yes")


def test_a_program_learns_whether_it_runs():
    for choice, shown in (("0", "False"), ("1", "")):
        command = [sys.executable, "-c", "import oz; print(oz.__compiled__)"]
        environment = {"OZ_COMPILED": choice, "PYTHONPATH": str(compiled.__path__[0] + "/../..")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(shown)
    assert oz.__compiled__ is (compiled.HOT is not None)


@pytest.mark.parametrize(
    ("why_not", "choice", "state", "add"),
    [
        ("", "1", "yes", ""),
        ("switched off by OZ_COMPILED=0", "0", "no", "unset OZ_COMPILED"),
        ("not built", None, "no", "apt-get install -y gcc python3-dev"),
    ],
)
def test_doctor_shows_whether_the_compiled_part_runs(monkeypatch, why_not, choice, state, add):
    monkeypatch.setattr(doctor, "WHY_NOT", why_not)
    monkeypatch.delenv("OZ_COMPILED", raising=False)
    if choice is not None:
        monkeypatch.setenv("OZ_COMPILED", choice)
    [check] = [requirement for requirement in doctor.requirements() if requirement.name == "compiled"]
    assert check.state == state
    assert why_not in check.note
    assert add in check.add
