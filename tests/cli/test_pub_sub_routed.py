"""`oz pub` and `oz sub` where the publisher filters."""

import json
import os
import re
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

import click
import pytest

import oz as library
from oz.cli.sub import _say_gap
from support.node_commands import Lines
from support.waiting import DEADLINE, until


@pytest.fixture
def endpoint(tmp_path):
    return f"ipc://{tmp_path}/feed"


@pytest.fixture
def publisher(endpoint):
    with library.Publisher(endpoint) as opened:
        yield opened


def publish(oz_run, endpoint, *arguments, stdin=None):
    ended = oz_run("pub", "--bind", endpoint, "--wait", "60", *arguments, stdin=stdin)
    assert ended.code == 0, ended.stderr


def stderr_line(running):
    readable, _, _ = select.select([running.process.stderr], [], [], 3 * DEADLINE)
    assert readable, "nothing on stderr"
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(running.process.stderr.fileno(), 1)
    return line.decode().rstrip("\n")


def test_ready_means_that_what_is_published_then_arrives(oz_start, publisher, endpoint):
    subscriber = oz_start("sub", "*.b", "--filtering", "publisher", "--connect", endpoint, "--count", "1")
    assert subscriber.ready_line() == f"oz sub: ready, connected to {endpoint}"
    publisher.publish("a.c", b"0")
    publisher.publish("a.b", b"1")
    assert subscriber.end().lines == ["a.b 1"]


def test_without_a_publisher_it_says_so_and_is_ready_only_later(oz_start, endpoint):
    subscriber = oz_start("sub", "*.b", "--filtering", "publisher", "--connect", endpoint, "--count", "1")
    line = stderr_line(subscriber)
    assert line.startswith(
        f"oz sub: not ready within 1 s: nothing answers at {endpoint} (link endpoint {endpoint}.links)"
    )
    assert line.endswith("; waiting")
    with library.Publisher(endpoint) as publisher:
        assert stderr_line(subscriber) == f"oz sub: ready, connected to {endpoint}"
        publisher.publish("a.b", b"1")
        assert subscriber.end().lines == ["a.b 1"]


def test_it_ends_with_4_when_no_publisher_ever_answers(oz_run, endpoint):
    ended = oz_run("sub", "a", "--filtering", "publisher", "--connect", endpoint, "--timeout", "0.1")
    assert ended.code == 4
    missing, silence = ended.stderr.splitlines()
    assert missing.startswith("oz sub: not ready within 0.1 s: nothing answers at")
    assert silence == "oz sub: no message for 0.1 s"


def test_a_missing_publisher_among_two_is_named(oz_start, publisher, endpoint):
    ends = ("--connect", endpoint, "--connect", f"{endpoint}-2")
    subscriber = oz_start("sub", "a", *ends)
    line = stderr_line(subscriber)
    assert f"nothing answers at {endpoint}-2" in line
    assert f"at {endpoint} " not in line
    publisher.publish("a", b"1")
    assert subscriber.stdout_line() == "a 1"


def test_pub_and_sub_meet(oz_start, oz_run, endpoint):
    subscriber = oz_start("sub", "*.b", "--filtering", "publisher", "--connect", endpoint, "--count", "2000")
    publish(oz_run, endpoint, "a.b", "x", "--count", "2000")
    assert subscriber.end().lines == ["a.b x"] * 2000


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "a b c"),
        (("--headers",), 'a {"user": "änn", "trace": "7=f"} b c'),
        (
            ("--headers", "--json"),
            '{"subject": "a", "payload": "b c", "headers": {"user": "änn", "trace": "7=f"}}',
        ),
    ],
)
def test_headers_are_published_and_shown_on_request(oz_start, oz_run, endpoint, options, line):
    subscriber = oz_start("sub", "a", *options, "--connect", endpoint, "--count", "1")
    publish(oz_run, endpoint, "a", "b c", "--header", "user=änn", "--header", "trace=7=f")
    assert subscriber.end().lines == [line]


def test_headers_of_every_kind_fit_in_a_line(oz_start, publisher, endpoint):
    subscriber = oz_start("sub", "a", "--headers", "--connect", endpoint, "--count", "2")
    subscriber.ready_line()
    publisher.publish("a", b"b", headers={"n": 1, "no": None, "raw": b"\xff", "line": "1\n\x9b2"})
    publisher.publish("a", b"b")
    assert subscriber.end().lines == [
        'a {"n": 1, "no": null, "raw_base64": "/w==", "line": "1\\n\\u009b2"} b',
        "a {} b",
    ]


def test_a_group_shares_the_messages(oz_start, publisher, endpoint):
    options = ("--group", "workers", "--connect", endpoint, "--count", "50")
    members = [oz_start("sub", "job.*", *options) for _ in range(2)]
    for member in members:
        member.ready_line()
    for number in range(100):
        publisher.publish("job.a", b"%d" % number)
    lines = [line for member in members for line in member.end().lines]
    assert sorted(lines) == sorted(f"job.a {number}" for number in range(100))


def count_received(subscriber):
    try:
        return len(subscriber.receive_many(timeout=0.02))
    except library.Timeout:
        return 0


def test_a_key_sends_all_subjects_to_one_member(oz_start, endpoint):
    lines = [b"job.%d x\n" % number for number in range(20)]
    feeder = oz_start("pub", "-", "--key", "same", "--bind", endpoint, "--wait", "0", stdin=subprocess.PIPE)
    with library.Subscriber(endpoint) as one, library.Subscriber(endpoint) as other:
        for member in (one, other):
            member.subscribe("job.*", group="workers", delivery=library.Delivery(policy="sticky"))
            member.wait_ready(timeout=DEADLINE)
        feeder.process.stdin.write(b"".join(lines))
        feeder.process.stdin.close()
        counts = [0, 0]

        def have_all():
            for at, member in enumerate((one, other)):
                counts[at] += count_received(member)
            return sum(counts) == 20

        until(have_all)
        assert sorted(counts) == [0, 20]


def test_conflate_skips_outdated_messages(oz_start, endpoint):
    with library.Publisher(endpoint, options=library.Options(resume_bytes=1000)) as publisher:
        subscriber = oz_start("sub", "a.*", "--overflow", "conflate", "--connect", endpoint)
        subscriber.ready_line()
        lines = Lines(subscriber.process.stdout)
        subscriber.process.send_signal(signal.SIGSTOP)
        for number in range(10_000):
            publisher.publish("a.b", b"%d" % number)
        publisher.flush()
        subscriber.process.send_signal(signal.SIGCONT)
        until(lambda: lines.seen and lines.seen[-1] == "a.b 9999")
        assert len(lines.seen) < 5000


def test_the_last_values_come_first_to_whoever_asks(oz_start, oz_run, endpoint):
    first = oz_start("sub", "a.*", "--filtering", "publisher", "--connect", endpoint, "--count", "3")
    feeder = oz_start("pub", "-", "--last-value", "--bind", endpoint, "--wait", "60", stdin=subprocess.PIPE)
    feeder.process.stdin.write(b"a.x 1\na.x 2\na.y 3\n")
    assert first.end().lines == ["a.x 1", "a.x 2", "a.y 3"]
    late = oz_run("sub", "a.*", "--last-value", "--connect", endpoint, "--count", "2", "--timeout", "60")
    assert late.lines == ["a.x 2", "a.y 3"]
    feeder.process.stdin.close()
    assert feeder.process.wait(60) == 0


def test_last_values_that_nobody_asked_for_yet_are_no_failure(oz_run, endpoint):
    options = ("--last-value", "--bind", endpoint, "--wait", "0")
    ended = oz_run("pub", "-", *options, stdin=b"a.x 1\n")
    assert (ended.code, len(ended.stderr.splitlines())) == (0, 1)


@pytest.mark.heavy
def test_what_is_lost_is_said_to_the_message(oz_start, endpoint):
    options = library.Options(high_water_mark=2, resume_bytes=100_000)
    with library.Publisher(endpoint, options=options) as publisher:
        subscriber = oz_start("sub", "a.*", "--connect", endpoint)
        subscriber.ready_line()
        lines, said = Lines(subscriber.process.stdout), Lines(subscriber.process.stderr)
        subscriber.process.send_signal(signal.SIGSTOP)
        for number in range(1_000):
            publisher.publish("a.b", b"%04d" % number + b"x" * 10_000)
        subscriber.process.send_signal(signal.SIGCONT)
        gaps = re.compile(r"oz sub: (\d+) messages? of publisher [0-9a-f]{8}… (?:was|were) lost \(dropped\)")

        def counted():
            found = [(line, gaps.fullmatch(line)) for line in list(said.seen)]
            assert all(match for _, match in found), found
            lost = sum(int(match.group(1)) for _, match in found)
            return lost and len(lines.seen) + lost == 1_000

        until(counted)
        numbers = [int(line[4:8]) for line in lines.seen]
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 message of publisher 00000000… was lost (lost)"),
        (12, "12 messages of publisher 00000000… were lost (lost)"),
        (None, "messages of publisher 00000000… may be lost, their number is unknown (lost)"),
    ],
)
def test_gaps_in_words(capsys, count, said):
    with click.Context(click.Command("sub"), info_name="sub") as ctx:
        _say_gap(ctx, library.Gap(bytes(16), count, 0, "lost"))
    assert capsys.readouterr().err == f"sub: {said}\n"


def test_a_busy_subscriber_says_that_it_is_ready_once_all_have_answered(oz_start, publisher, endpoint):
    ends = ("--connect", endpoint, "--connect", f"{endpoint}-2")
    subscriber = oz_start("sub", "a", "--filtering", "publisher", *ends)
    assert "nothing answers at" in stderr_line(subscriber)
    ended = threading.Event()

    def keep_busy():
        while not ended.wait(0.01):
            publisher.publish("a", b"1")

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        Lines(subscriber.process.stdout)
        with library.Publisher(f"{endpoint}-2"):
            assert "oz sub: ready" in stderr_line(subscriber)
    finally:
        ended.set()
        busy.join()


def test_ctrl_c_while_it_waits_for_publishers_is_quiet(oz_start, endpoint):
    subscriber = oz_start("sub", "a", "--filtering", "publisher", "--connect", endpoint)
    stderr_line(subscriber)
    started = time.monotonic()
    subscriber.interrupt()
    ended = subscriber.end()
    assert (ended.code, ended.stderr) == (130, "")
    assert time.monotonic() - started < DEADLINE


@pytest.mark.parametrize("stdin", [b"a x\n\na..b y\n", b"a x\n\n\xff y\n"])
def test_a_bad_line_is_named_by_its_number(oz_start, oz_run, endpoint, stdin):
    subscriber = oz_start("sub", "a", "--connect", endpoint, "--count", "1")
    ended = oz_run("pub", "-", "--bind", endpoint, "--wait", "60", stdin=stdin)
    assert ended.code == 2
    assert ended.stderr.splitlines()[-1].startswith("oz pub: line 3: ")
    assert subscriber.end().lines == ["a x"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("sub", "a", "--filtering", "nobody"),
        ("sub", "a", "--filtering", "prefix", "--group", "workers"),
        ("sub", "a", "--filtering", "prefix", "--headers"),
        ("sub", "a", "--filtering", "prefix", "--last-value"),
        ("sub", "a", "--policy", "failover"),
        ("sub", "a", "--group", ""),
        ("sub", "a", "--group", "x" * 300),
        ("sub", "a", "--group", "g", "--policy", "random"),
        ("sub", "a", "--overflow", "some"),
        ("pub", "a", "b", "--header", "name"),
        ("pub", "a", "b", "--header", "=value"),
        ("pub", "a", "b", "--header", "a=1", "--header", "a=2"),
        ("pub", "a", "b", "--header", b"a=\xff"),
    ],
)
def test_what_is_written_wrongly_exits_2_at_once(oz_run, arguments):
    ended = oz_run(*arguments)
    assert ended.code == 2
    assert "Traceback" not in ended.stderr
    assert "ready" not in ended.stderr


def test_json_is_as_before_without_headers(oz_start, publisher, endpoint):
    subscriber = oz_start(
        "sub", "a", "--json", "--overflow", "drop_oldest", "--connect", endpoint, "--count", "1"
    )
    subscriber.ready_line()
    publisher.publish("a", b"b", headers={"x": "y"})
    assert json.loads(subscriber.end().stdout) == {"subject": "a", "payload": "b"}


def test_ctrl_c_ends_the_wait_for_a_slow_subscriber_and_says_what_is_unsent(oz_start, endpoint, tmp_path):
    lines = tmp_path / "lines"
    lines.write_bytes(b"\n".join(b"%d " % number + bytes(20_000).hex().encode() for number in range(200)))
    with (
        library.Subscriber(bind=endpoint, options=library.Options(high_water_mark=1)) as slow,
        lines.open("rb") as stdin,
    ):
        slow.subscribe("a.*")
        running = oz_start("pub", "a.b", "--connect", endpoint, "--wait", "60", stdin=stdin)
        running.ready_line()
        slow.receive(timeout=DEADLINE)
        counts = Path(f"/proc/{running.process.pid}/io")
        seen = [None] * 200

        def reads_no_more():
            seen[:] = [*seen[1:], counts.read_text()]
            return len(set(seen)) == 1

        until(reads_no_more)
        running.interrupt()
        ended = running.end()
    assert ended.code == 1
    assert "unsent: a subscriber has not received the last of the 200" in ended.stderr
