"""`oz spark report`."""

import json
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.cli import main
from oz.cli.spark import report
from spark.recorded import random_records, record_journal


@pytest.fixture
def run(spark, monkeypatch):
    """Runs a command in the tests' own session, which must not end with it."""

    @contextmanager
    def engine(master, conf):
        yield spark

    monkeypatch.setattr(report, "engine", engine)
    return lambda *arguments: CliRunner().invoke(main, ["spark", *map(str, arguments)])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return record_journal(tmp_path_factory.mktemp("command") / "recorded", random_records(11, count=100))


def test_report_writes_a_page_and_figures_and_a_summary(run, recorded, tmp_path):
    page, figures = tmp_path / "page.html", tmp_path / "figures.json"
    ran = run("report", recorded, "--html", page, "--json", figures, "--most", 3)
    assert ran.exit_code == 0, ran.output
    total = json.loads(figures.read_text())["total"]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert f"{total['messages']:,}" in ran.stdout
    assert "spark report: reading" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("report", "nothing-here"), 1, "there is no journal here"),
        (("report", "nothing-here", "--subject", "a..b"), 2, "token must not be empty"),
        (("report", "nothing-here", "--separator", ""), 2, "separator is empty"),
        (("report", "nothing-here", "--most", "0"), 2, "most"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, arguments, code, why):
    ran = run(*arguments)
    assert ran.exit_code == code
    assert why in ran.stderr
    assert "Traceback" not in ran.stderr
