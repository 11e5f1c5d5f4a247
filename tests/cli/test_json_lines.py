"""`oz pub --json` reads the output of `oz sub --json`."""

import json

import pytest

import oz as library
from oz.cli.json_lines import read_json_line
from oz.cli.payloads import BadPayload
from support.waiting import DEADLINE, Thread

LINES = [
    {"subject": "a.b", "payload": "one"},
    {"subject": "a.é", "payload_base64": "/wA=", "headers": {"n": 1, "raw_base64": "/w==", "no": None}},
    {"subject_base64": "YS7/", "payload": ""},
]
HEADERS = {"n": "0", "own": "1"}


def test_output_of_sub_is_published_again_unchanged(oz_run, endpoint, stdin):
    reading, writing = stdin
    text = "".join(f"{json.dumps(line)}\n" for line in LINES).encode()

    def copy():
        with library.Subscriber(endpoint, dialect="redis") as subscriber:
            subscriber.subscribe("*")
            writing.write(text)
            writing.close()
            return [subscriber.receive(timeout=DEADLINE) for _ in LINES]

    copying = Thread(copy)
    pub = ("pub", "-", "-j", "-b", endpoint, "--wait", "60", "--dialect", "redis", "-H", "n=0", "-H", "own=1")
    assert oz_run(*pub, stdin=reading).code == 0
    # The headers of a line replace the headers of the command.
    expected = [HEADERS | read_json_line(json.dumps(line).encode())[2] for line in LINES]
    messages = copying.outcome()
    assert [dict(message.headers) for message in messages] == expected

    def publish():
        with library.Publisher(endpoint, dialect="redis") as publisher:
            publisher.wait_for_subscribers(timeout=DEADLINE)
            for message in messages:
                publisher.publish(message.subject_bytes, message.payload, headers=message.headers)

    publishing = Thread(publish)
    shown = oz_run("sub", "redis:*", "-c", endpoint, "-n", "3", "-t", "60", "-j", "--headers")
    publishing.outcome()
    headers = [{**HEADERS, **line.get("headers", {})} for line in LINES]
    assert [json.loads(line) for line in shown.lines] == [
        line | {"headers": own} for line, own in zip(LINES, headers, strict=True)
    ]


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
