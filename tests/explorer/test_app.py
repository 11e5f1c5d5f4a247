"""The web application of `oz explorer`, on a bus of real nodes."""

from contextlib import closing

import pytest

pytest.importorskip("starlette", reason="without the extra explorer")
httpx = pytest.importorskip("httpx", reason="the client of these tests")

import oz  # noqa: E402
from oz.explorer.server import HEADERS, MAX_BODY, Server  # noqa: E402
from oz.explorer.view import BusView  # noqa: E402
from support.waiting import until  # noqa: E402

# `tox -e docs` has the extra.
pytestmark = pytest.mark.documents


def serve(scene, **options):
    """Return a server for a `with` block."""
    return closing(Server(BusView(scene.explorer, [">"]), "127.0.0.1:0", **options))


@pytest.fixture
def client(scene):
    with (
        serve(scene, publish=scene.explorer.publish) as server,
        httpx.Client(base_url=server.url, timeout=60) as made,
    ):
        scene.wait_ready()
        yield made


def subjects(client, **fields):
    response = client.post("/api/subjects", json=fields)
    assert response.status_code == 200
    return response.json()


def test_tree_message_and_pattern(scene, client):
    scene.publish()
    until(lambda: subjects(client)["sampling"]["messages"] == 44)
    found = subjects(client, open=["md", "md.fx"], selected="md.fx.EURUSD")
    assert [(row["path"], row["messages"], row["children"]) for row in found["rows"]] == [
        ("job", 1, 1), ("md", 43, 3), ("md.equity", 1, 1), ("md.fx", 2, 2), ("md.fx.EURUSD", 1, 0),
        ("md.fx.GBPUSD", 1, 0), ("md.index", 40, 8),
    ]  # fmt: skip
    assert found["message"]["form"] == "msgpack"
    assert '"bid": 1.0871' in found["message"]["text"]
    found = subjects(client, pattern="Md.>", dialect="rv")
    assert (found["pattern"]["matched"], found["rows"]) == (0, [])
    found = subjects(client, pattern="redis:md.*USD")
    assert [row["label"] for row in found["rows"]] == ["md.fx.EURUSD", "md.fx.GBPUSD"]
    assert (found["pattern"]["crossed_messages"], found["pattern"]["matched_messages"]) == (43, 2)
    assert "position 1" in subjects(client, pattern="regex:(")["pattern"]["error"]


def test_slow_subscriber_groups_and_links(scene, client):
    scene.publish()
    until(lambda: client.get("/api/bus").json()["subscribers"][0]["slow"])
    bus = client.get("/api/bus").json()
    assert bus["subscribers"][0]["node"] == "dashboard"
    # Of the 43 messages of md, one is in the handler.
    assert bus["subscribers"][0]["pending"] >= 40
    assert {(row["group"], row["members"]) for row in bus["groups"]} == {("workers", 2)}
    names = {row["id"]: row["node"] for row in bus["nodes"]}
    assert ("prices", "dashboard") in {(names[link["from"]], names[link["to"]]) for link in bus["links"]}
    assert "explorer" not in {link["to_name"] for link in bus["links"]}


def test_publish_sends_messagepack(scene, client):
    inbox = scene.workers[0].subscribe("typed.>")
    scene.explorer.wait_ready(subscriber="typed.a", timeout=60)
    answer = client.post("/api/publish", json={"subject": "typed.a", "payload": "[1]", "form": "msgpack"})
    assert answer.json() == {"published": "typed.a"}
    assert inbox.receive(timeout=60).payload == [1]
    for fields in ({"subject": "a..b"}, {"payload": "{"}, {"form": "hex"}, {"subject": 1}):
        body = {"subject": "typed.a", "payload": "1", "form": "msgpack"} | fields
        assert client.post("/api/publish", json=body).status_code == 400, fields


def test_publish_needs_the_option(scene):
    with serve(scene) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert not client.get("/api/settings").json()["publish"]
        body = {"subject": "a", "payload": "1", "form": "text"}
        assert client.post("/api/publish", json=body).status_code == 404


def test_other_sites_and_malformed_requests_are_rejected_and_headers_are_strict(client):
    for path in ("/", "/explorer.js", "/explorer.css", "/api/settings", "/api/bus", "/api/subjects"):

        def ask(path=path, **headers):
            if path == "/api/subjects":
                return client.post(path, json={}, headers=headers)
            return client.get(path, headers=headers)

        good = ask(origin=str(client.base_url).rstrip("/"))
        assert good.status_code == 200
        assert HEADERS.items() <= {key: good.headers.get(key) for key in HEADERS}.items()
        assert "unsafe" not in good.headers["content-security-policy"]
        assert ask(host="attacker.example:8460").status_code == 403
        assert ask(origin="http://attacker.example").status_code == 403
    for content, kind, status in (
        (b"{}", "text/plain", 415),
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"open": 3}', "application/json", 400),
        (b'{"dialect": "cheese"}', "application/json", 400),
        (b" " * (MAX_BODY + 1), "application/json", 413),
    ):
        answer = client.post("/api/subjects", content=content, headers={"content-type": kind})
        assert (answer.status_code, bool(answer.json()["error"])) == (status, True), content


def test_there_is_no_websocket(scene):
    with serve(scene) as server:
        handshake = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
                     "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
        assert httpx.get(server.url + "api/settings", timeout=60).status_code == 200
        assert httpx.get(server.url + "ws", headers=handshake, timeout=60).status_code == 404
        with pytest.raises(oz.ConfigurationError, match="cannot be bound"):
            Server(BusView(scene.explorer, [">"]), server.url.split("/")[2])
