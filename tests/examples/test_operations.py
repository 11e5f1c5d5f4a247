"""Files of examples/operations: a dashboard, alerts, containers and units."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.shell_blocks import unknown_word
from oz.cli import main
from oz.node.metrics import families
from oz.node.snapshot import HandlerTimes, LinkStatus, Snapshot, SubscriptionStatus
from oz.node.stats import NodeStats

OPERATIONS = Path(__file__).parents[2] / "examples" / "operations"

pytestmark = pytest.mark.documents


def _metrics():
    """Return the names and labels of all metrics."""
    link = LinkStatus("desk", "0a" * 16, "up", 3, 12, 480, 0.25, {"full": 2}, {"workers": 7})
    subscription = SubscriptionStatus(("a",), None, "received", 5, 1.5, 1, HandlerTimes(4, 0.5, 0.25, None))
    counters = dict.fromkeys(NodeStats.__dataclass_fields__, 1)
    snapshot = Snapshot(
        name="n", id="0b" * 16, bus="lan", host="h", pid=7, kind="node", time=1.5, uptime=2.0, memory=1, descriptors=1,
        counters=counters, dropped={"full": 1}, lost={"full": 1}, unknown_losses={"lost": 1}, links=(link,),
        subscriptions=(subscription,), omitted=0,
    )  # fmt: skip
    found = {
        family.name: {name for labels in family.samples for name, _ in labels}
        for family in families([snapshot])
    }
    return found | {"oz_nodes_unanswered": {"bus"}}


def _check_expression(expression):
    known = _metrics()
    names = re.findall(r"\boz_\w+", expression)
    assert names
    assert set(names) <= set(known), expression
    labels = set().union(*(known[name] for name in names))
    for listed in re.findall(r"by \(([\w, ]+)\)", expression):
        assert set(listed.split(", ")) <= labels, expression
    assert expression.count("(") == expression.count(")")
    assert all(
        ("rate(" in expression or "increase(" in expression) for name in names if name.endswith("_total")
    )


def test_dashboard_shows_metrics_that_exist():
    dashboard = json.loads((OPERATIONS / "grafana.json").read_text())
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    places = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        places.add((place["x"], place["y"]))
        assert place["x"] + place["w"] <= 24
        for target in panel["targets"]:
            _check_expression(target["expr"])
            assert set(re.findall(r"\$\{?([a-z]\w+)", target["expr"])) <= variables
    assert len(places) == len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_alerts_use_metrics_that_exist():
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        _check_expression(rule["expr"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])


def test_containers_run_commands_that_exist():
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((OPERATIONS / "compose.yaml").read_text())
    for service in compose["services"].values():
        assert "image" in service or "build" in service
        assert set(service.get("depends_on", ())) <= set(compose["services"])
        if "build" in service:
            assert unknown_word(service["command"], main) is None
        probe = service.get("healthcheck", {}).get("test", ())
        if "oz" in probe:
            assert unknown_word(probe[2:], main) is None
    targets = yaml.safe_load((OPERATIONS / "prometheus.yml").read_text())["scrape_configs"]
    hosts = {
        host.partition(":")[0] for job in targets for one in job["static_configs"] for host in one["targets"]
    }
    assert hosts <= set(compose["services"])


UNITS = sorted((OPERATIONS / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_units_run_commands_that_exist(unit):
    (line,) = re.findall(r"^ExecStart=/opt/oz/bin/oz (.*)$", unit.read_text(), re.MULTILINE)
    assert unknown_word(line.split(), main) is None


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this host has no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path):
    for unit in UNITS:
        text = unit.read_text().replace("/opt/oz/bin/oz", f"{sys.executable} -m oz")
        (tmp_path / unit.name).write_text(text)
    ran = subprocess.run(
        ["systemd-analyze", "verify", *map(str, sorted(tmp_path.glob("*.service")))],
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
