"""Payloads as text, and the requests that are rejected."""

import msgpack
import pytest

from oz.explorer import payload
from oz.explorer.access import is_local, refusal


@pytest.mark.parametrize(
    ("content", "form", "expected"),
    [
        (b'{"a": [1]}', "auto", ("json", '{\n  "a": [\n    1\n  ]\n}')),
        (b"12.5", "auto", ("json", "12.5")),
        (b"two\nlines", "auto", ("text", "two\nlines")),
        (b"", "auto", ("text", "")),
        (msgpack.packb({"a": b"\xff"}), "auto", ("msgpack", '{\n  "a": "/w=="\n}')),
        (b"\xff\x00", "auto", ("hex", "0000  ff 00")),
        (b"red \x1b[31m", "auto", ("hex", "0000  72 65 64 20 1b 5b 33 31 6d")),
        ("gnp.\u202eexe".encode(), "auto", ("hex", "0000  67 6e 70 2e e2 80 ae 65 78 65")),
        (b"5", "msgpack", ("msgpack", "53")),
        (b"not json", "json", ("hex", "0000  6e 6f 74 20 6a 73 6f 6e")),
        (b"\x91" * 5_000, "msgpack", ("hex", "0000  " + " ".join(["91"] * 16))),
    ],
)
def test_payload_is_decoded(content, form, expected):
    name, text = payload.decode(content, form)
    assert (name, text if len(text) < 1_000 else text.split("\n")[0]) == expected


@pytest.mark.parametrize("form", payload.FORMS)
@pytest.mark.parametrize("content", [b"\x1b]0;x\x07", "a\u202eb\x9b".encode(), b'["\\u202e"]', b"\xa3\x1b[m"])
def test_text_has_no_invisible_characters(content, form):
    assert payload.decode(content, form)[1].replace("\n", "").isprintable()
    assert payload.preview(content).isprintable()


def test_preview_is_short():
    assert payload.preview(b'{"a":   1}') == '{"a": 1}'
    assert len(payload.preview(b"x" * 100_000)) == 81


def test_typed_text_becomes_a_payload():
    assert payload.encode('{"a": 1}', "msgpack") == msgpack.packb({"a": 1})
    assert payload.encode("a", "text") == b"a"
    with pytest.raises(ValueError, match="not JSON"):
        payload.encode("{", "msgpack")


@pytest.mark.parametrize(
    ("host", "origin", "is_rejected"),
    [
        ("127.0.0.1:8460", None, False),
        ("localhost:1", "http://localhost:1", False),
        ("[::1]:8460", "http://[::1]:8460", False),
        ("192.0.2.7", "https://192.0.2.7", False),
        ("bus.example", "https://bus.example", False),
        ("attacker.example:8460", None, True),
        ("localhost.attacker.example", None, True),
        ("127.0.0.1.attacker.example", None, True),
        (None, None, True),
        ("[", None, True),
        ("localhost:1", "http://localhost:2", True),
        ("localhost:1", "http://attacker.example", True),
        ("localhost:1", "null", True),
    ],
)
def test_requests_of_other_sites_are_rejected(host, origin, is_rejected):
    assert bool(refusal(host, origin, ["bus.example"])) is is_rejected


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:1", True), ("[::1]:1", True), ("localhost:1", True), ("0.0.0.0:1", False), (":1", False)],
)
def test_local_addresses(address, expected):
    assert is_local(address) is expected
