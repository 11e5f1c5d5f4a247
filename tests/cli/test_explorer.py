"""`oz explorer`: start, end, and errors."""

import json
import sys
import urllib.request

import pytest
import zmq

from support.keyring import Keyring
from support.ports import lasting_port
from support.urls import fetch


def test_command_without_the_extra_names_the_remedy(oz, directory, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("oz.explorer.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("starlette", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    ended = oz("explorer")
    assert ended.exit_code == 1
    assert "pip install '.[explorer]'" in ended.stderr


@pytest.mark.documents  # `tox -e docs` has the extra
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--listen", "nowhere"], "give HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], "give HOST:PORT"),
        (["--pattern", "a..b"], "a..b"),
        (["--separator", ""], "the text is empty"),
    ],
)
def test_wrong_options_are_usage_errors(directory, oz, options, reason):
    pytest.importorskip("starlette", reason="without the extra explorer")
    result = oz("explorer", "--listen", "127.0.0.1:0", *options)
    assert (result.exit_code, reason in result.stderr) == (2, True), result.stderr


@pytest.mark.documents
@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")
def test_it_serves_the_page_and_its_key_decides_what_it_reads_and_publishes(
    directory, tmp_path, oz, signal_when
):
    pytest.importorskip("starlette", reason="without the extra explorer")
    ring = Keyring(tmp_path, "desk")
    ring.permit(desk='subscribe = { allow = ["md.>"] }\npublish = { allow = ["other.>"] }')
    ring.configure("desk")
    address = f"127.0.0.1:{lasting_port()}"
    options = ("explorer", "--listen", address, "--security", ring.file("desk"))
    denied = oz(*options)
    assert (denied.exit_code, "desk may not subscribe to '>'" in denied.stderr) == (1, True), denied.stderr
    answers = []

    def has_answered():
        answers.append(fetch(f"http://{address}/"))
        body = json.dumps({"subject": "md.eu", "payload": "1", "form": "text"}).encode()
        headers = {"Content-Type": "application/json"}
        answers.append(fetch(urllib.request.Request(f"http://{address}/api/publish", body, headers)))
        return True

    signal_when(has_answered)
    ended = oz(*options, "--pattern", "md.>", "--allow-publish")
    assert (ended.exit_code, f"explorer at http://{address}/\n" in ended.stderr) == (0, True)
    [(status, page), (refused, reason)] = answers
    assert (status, "<h1>oz explorer</h1>" in page) == (200, True)
    assert (refused, "desk may not publish" in reason) == (403, True)
