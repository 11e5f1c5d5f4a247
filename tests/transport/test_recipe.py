"""The recipe for PGM is one, wherever it is written."""

import configparser
from pathlib import Path

from oz.transport import capabilities

ROOT = Path(__file__).parents[2]


def test_tox_builds_pyzmq_by_the_recipe():
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", "utf-8")
    section = tox["testenv:pgm"]
    assert f"{section['set_env']} {section['commands_pre']}" == capabilities.build_line("python")


def test_continuous_integration_installs_the_packages_of_the_recipe():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert f"apt-get install -y -q {' '.join(capabilities.APT_PACKAGES)}\n" in script
    assert "first+=,pgm\n" in script
