"""`oz pub --json` reads the output of `oz sub --json`."""

import json
import subprocess

import pytest

import oz as library
from oz.cli.json_lines import read_json_line
from oz.cli.payloads import BadPayload
from support.waiting import DEADLINE

LINES = [
    {"subject": "a.b", "payload": "one"},
    {"subject": "a.é", "payload_base64": "/wA=", "headers": {"n": 1, "raw_base64": "/w==", "no": None}},
    {"subject_base64": "YS7/", "payload": ""},
]


def test_the_output_of_sub_is_published_again_unchanged(oz_start, tmp_path):
    text = "".join(f"{json.dumps(line)}\n" for line in LINES).encode()
    endpoint = f"ipc://{tmp_path}/feed"
    sub = oz_start("sub", "redis:*", "-c", endpoint, "-n", "3", "-t", "60", "-j", "--headers")
    pub = oz_start(
        "pub", "-", "-j", "-b", endpoint, "--wait", "60", "--dialect", "redis", stdin=subprocess.PIPE
    )
    assert pub.end(text).code == 0
    received = [json.loads(line) for line in sub.end().lines]
    assert received == [line if "headers" in line else line | {"headers": {}} for line in LINES]


def test_headers_of_a_line_replace_those_of_the_command(oz_start, tmp_path):
    endpoint = f"ipc://{tmp_path}/feed"
    options = ("-b", endpoint, "--wait", "60", "-H", "host=a", "-H", "pid=1")
    pub = oz_start("pub", "-", "--json", *options, stdin=subprocess.PIPE)
    with library.Subscriber(endpoint) as sub:
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
        pub.process.stdin.write(b'{"subject": "a", "payload": "x", "headers": {"host": "b"}}\n')
        pub.process.stdin.write(b'\n{"subject": "a", "payload": "y"}\n')
        pub.process.stdin.close()
        found = [dict(sub.receive(timeout=DEADLINE).headers) for _ in range(2)]
    assert found == [{"host": "b", "pid": "1"}, {"host": "a", "pid": "1"}]
    assert pub.process.wait(60) == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not an object"),
        (b'{"payload": "x"}', "subject is text, or subject_base64"),
        (b'{"subject": "a"}', "payload is text, or payload_base64"),
        (b'{"subject": "a", "payload": 1}', "payload is text"),
        (b'{"subject": "a", "payload_base64": "?"}', "payload_base64 is not base64"),
        (b'{"subject": "a", "payload": "x", "headers": 1}', "headers is not an object"),
        (b'{"subject": "a", "payload": "x", "more": []}', "several payload frames"),
        (b'{"subject": "a", "payload": "x", "topic": "y"}', "unknown field 'topic'"),
    ],
)
def test_a_wrong_line_is_refused_with_the_reason(line, reason):
    with pytest.raises(BadPayload) as refused:
        read_json_line(line)
    assert reason in str(refused.value)


def test_a_wrong_line_ends_the_command_with_its_number(oz_run, tmp_path):
    options = ("--bind", f"ipc://{tmp_path}/feed", "--wait", "0")
    ended = oz_run("pub", "-", "--json", *options, stdin=b'{"subject": "a", "payload": "x"}\n{}\n')
    assert ended.code == 2
    assert ended.stderr.splitlines()[-1].startswith("oz pub: line 2: subject is text")
