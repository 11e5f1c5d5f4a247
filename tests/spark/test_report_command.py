"""`oz spark report` and `oz spark explain`."""

import json
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.cli import main
from oz.cli.spark import explain, report
from spark.recorded import random_records, record_journal


@pytest.fixture
def run(spark, monkeypatch):
    """Runs a command in the tests' own session, which must not end with it."""

    @contextmanager
    def engine(master, conf):
        yield spark

    for command in (report, explain):
        monkeypatch.setattr(command, "engine", engine)
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


def test_explain_shows_a_table_and_writes_figures(run, recorded, tmp_path):
    more, figures = tmp_path / "more.txt", tmp_path / "figures.json"
    more.write_text("rv:b.>\n\n*.b.>\n")
    ran = run("explain", recorded, "a.*.c", "--from-file", more, "--json", figures)
    assert ran.exit_code == 0, ran.output
    assert [one["pattern"] for one in json.loads(figures.read_text())["patterns"]] == [
        "a.*.c",
        "rv:b.>",
        "*.b.>",
    ]
    for said in ("selectivity", "rv:b.>", "all in one subscriber", "publishers filter"):
        assert said in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("report", "nothing-here"), 1, "there is no journal here"),
        (("explain", "nothing-here", "a"), 1, "there is no journal here"),
        (("explain", "nothing-here"), 2, "no PATTERN"),
        (("explain", "nothing-here", "a..b"), 2, "token must not be empty"),
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
