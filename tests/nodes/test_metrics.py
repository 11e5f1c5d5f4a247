"""Metrics of snapshots in the text format of Prometheus, and the HTTP server."""

import select
import socket
import struct
import threading
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

import oz
import oz.metrics
from oz.node.metrics import exposition, families
from oz.node.snapshot import HandlerTimes, LinkStatus, Snapshot, SubscriptionStatus
from support.scripts import run
from support.waiting import until


def snapshot_of(**changes):
    """Return a snapshot in which each field has a value."""
    link = LinkStatus("desk", "0a" * 16, "up", 3, 12, 480, 0.25, {"full": 2}, {"workers": 7})
    subscription = SubscriptionStatus(
        ("md.>",), "workers", "received", 5, 1.5, 1, HandlerTimes(4, 0.5, 0.25, None)
    )
    known = {
        "name": "feed", "id": "0b" * 16, "bus": "lan", "host": "h", "pid": 7, "kind": "node", "time": 1.5,
        "uptime": 2.0, "memory": 4096, "descriptors": 9, "dropped": {"full": 2}, "lost": {"full": 1},
        "counters": dict.fromkeys(oz.NodeStats.__dataclass_fields__, 3) | {"dropped": 3},
        "unknown_losses": {"lost": 1}, "links": (link,), "subscriptions": (subscription,), "omitted": 0,
    }  # fmt: skip
    return Snapshot(**known | changes)


def lines_of(text, name):
    return [line for line in text.splitlines() if line.startswith(name)]


def test_each_family_has_help_and_type_once_and_units_in_its_name():
    found = families([snapshot_of(), snapshot_of(name="other", id="0c" * 16)])
    text = exposition(found)
    for family in found:
        assert (
            len(lines_of(text, f"# HELP {family.name} "))
            == len(lines_of(text, f"# TYPE {family.name} "))
            == 1
        )
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.name.startswith("oz_")
        assert not {"subject", "pattern"} & {name for labels in family.samples for name, _ in labels}
    assert (
        'oz_link_pending_messages{bus="lan",node="feed",id="0b0b0b0b",peer="desk",peer_id="0a0a0a0a"} 12'
        in text
    )
    assert 'oz_messages_lost_total{bus="lan",node="feed",id="0b0b0b0b",reason="full"} 1' in text
    assert 'oz_handler_seconds_total{bus="lan",node="feed",id="0b0b0b0b"} 0.5' in text


def test_group_counts_messages_at_the_publisher_and_at_its_members():
    text = exposition(families([snapshot_of()]))
    assert lines_of(text, "oz_group")[0].endswith("} 12")


def test_two_sessions_of_one_member_are_one_series():
    link = snapshot_of().links[0]
    links = (link._replace(state="down", oldest=4.5), link, link._replace(oldest=None))
    text = exposition(families([snapshot_of(links=links)]))
    for name, value in (
        ("up", "1"),
        ("pending_messages", "36"),
        ("pending_bytes", "1440"),
        ("oldest_seconds", "4.5"),
    ):
        assert [line.rpartition(" ")[2] for line in lines_of(text, f"oz_link_{name}")] == [value]


def test_labels_are_escaped():
    text = exposition(families([snapshot_of(name='a"\\\n\udcff')]))
    assert r'node="a\"\\\n\udcff"' in lines_of(text, "oz_peers")[0]


def test_text_is_read_by_the_parser_of_prometheus():
    parser = pytest.importorskip("prometheus_client.parser")
    found = families([snapshot_of()])
    read = {
        sample.name: sample.value
        for family in parser.text_string_to_metric_families(exposition(found))
        for sample in family.samples
    }
    assert read == {family.name: value for family in found for value in family.samples.values()}


def test_collector_gives_the_same_values(make):
    client = pytest.importorskip("prometheus_client")
    node = make("feed")
    registry = client.CollectorRegistry()
    registry.register(oz.metrics.Collector(node))
    node.publish("a.b", 1)
    labels = {"bus": node.bus, "node": "feed", "id": node.snapshot().id[:8]}
    assert registry.get_sample_value("oz_messages_published_total", labels) == 1
    assert registry.get_sample_value("oz_peers", labels) == 0
    node.close()
    assert client.generate_latest(registry) == b""


def read(server, path):
    try:
        with urllib.request.urlopen(f"http://{server.address}{path}", timeout=40) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_server_answers_with_metrics_and_health_also_after_an_error(caplog):
    texts, is_healthy = iter(["oz_x 1\n"]), [True]
    with oz.metrics.Server("127.0.0.1:0", lambda: next(texts), lambda: is_healthy[0]) as server:
        assert read(server, "/metrics") == (200, "oz_x 1\n")
        assert read(server, "/healthz") == (200, "ok\n")
        is_healthy[0] = False
        assert read(server, "/healthz")[0] == 503
        assert read(server, "/other")[0] == 404
        assert read(server, "/metrics")[0] == 503
        is_healthy[0] = True
        assert read(server, "/healthz")[0] == 200
    assert "/metrics failed" in caplog.text


def test_malformed_address_and_address_in_use_are_refused():
    for address in ("9464x", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:-1", ""):
        with pytest.raises(oz.ConfigurationError, match="HOST:PORT"):
            oz.metrics.Server(address, str)
    with (
        oz.metrics.Server("127.0.0.1:0", str) as server,
        pytest.raises(oz.ConfigurationError, match="cannot be bound"),
    ):
        oz.metrics.Server(server.address, str)


def test_client_that_breaks_off_prints_nothing(capfd):
    with oz.metrics.Server("127.0.0.1:0", str) as server:
        host, port = server.address.split(":")
        for request in (
            b"GET /metrics HTTP/1.1\r\n",
            b"GET /" + b"a" * 70_000,
            b"GET /metrics HTTP/1.1\r\n\r\n",
        ):
            with socket.create_connection((host, int(port))) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(request)
        until(lambda: all("process_request" not in thread.name for thread in threading.enumerate()))
    assert capfd.readouterr() == ("", "")


def test_client_that_never_ends_its_request_is_disconnected(monkeypatch):
    monkeypatch.setattr(oz.metrics, "_TIMEOUT", 0.2)
    with oz.metrics.Server("127.0.0.1:0", str) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=40) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            with suppress(OSError):
                while not select.select([client], [], [], 0.05)[0]:
                    client.sendall(b"a")
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""


FORKING = """
import os, signal, sys, warnings
import oz, oz.metrics
from prometheus_client import CollectorRegistry

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
registry = CollectorRegistry()
with (
    oz.Node("feed", bus="fork", options=oz.NodeOptions(directory=sys.argv[1])) as node,
    oz.metrics.Server("127.0.0.1:0", node.metrics) as server,
):
    registry.register(oz.metrics.Collector(node))
    assert list(registry.collect())
    if not os.fork():
        signal.alarm(30)
        assert not list(registry.collect())
        server.close()
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_child_of_a_fork_has_no_metrics_of_the_node_and_closes_its_server(directory):
    pytest.importorskip("prometheus_client")
    run("-c", FORKING, directory)
