"""`oz explorer`: start, end, and errors."""

import json
import sys
import urllib.error
import urllib.request

import pytest
import zmq

from support.keyring import Keyring


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
def test_process_serves_the_page_and_its_key_decides_what_it_reads_and_publishes(
    directory, tmp_path, oz, oz_start
):
    pytest.importorskip("starlette", reason="without the extra explorer")
    ring = Keyring(tmp_path, "desk")
    ring.permit(desk='subscribe = { allow = ["md.>"] }\npublish = { allow = ["other.>"] }')
    ring.configure("desk")
    options = ("explorer", "--listen", "127.0.0.1:0", "--security", ring.file("desk"))
    denied = oz(*options)
    assert (denied.exit_code, "desk may not subscribe to '>'" in denied.stderr) == (1, True), denied.stderr
    running = oz_start(*options, "--pattern", "md.>", "--allow-publish")
    url = running.line_with(running.process.stderr, b"explorer at").split()[-1]
    with urllib.request.urlopen(url, timeout=60) as page:
        assert b"<h1>oz explorer</h1>" in page.read()
    body = json.dumps({"subject": "md.eu", "payload": "1", "form": "text"}).encode()
    request = urllib.request.Request(f"{url}api/publish", body, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request, timeout=60):
        pass
    with refused.value as answer:
        assert (answer.code, "desk may not publish" in answer.read().decode()) == (403, True)
    running.interrupt()
    assert running.end().code == 0
