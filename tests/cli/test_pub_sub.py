"""`oz pub` and `oz sub` as processes that meet."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
import zmq

import oz as library
from oz.cli.options import DEFAULT_ENDPOINT
from support.waiting import Thread


@pytest.fixture
def endpoint(tmp_path):
    return f"ipc://{tmp_path}/feed"


def bound_to(line):
    return re.search(r"bound to (tcp://127\.0\.0\.1:\d+)", line).group(1)


def publish(oz_run, endpoint, *arguments, stdin=None):
    ended = oz_run("pub", "--bind", endpoint, "--wait", "60", *arguments, stdin=stdin)
    assert ended.code == 0, ended.stderr


def test_the_subscriber_may_start_first(oz_start, oz_run, endpoint):
    subscriber = oz_start("sub", "time.*.east", "--connect", endpoint, "--count", "1")
    subscriber.ready_line()
    publish(oz_run, endpoint, "time.new.east", "12:00")
    ended = subscriber.end()
    assert (ended.code, ended.stdout) == (0, b"time.new.east 12:00\n")


def test_the_publisher_may_start_first(oz_start, oz_run):
    publisher = oz_start("pub", "time.new.east", "12:00", "--bind", "tcp://127.0.0.1:*", "--wait", "60")
    endpoint = bound_to(publisher.ready_line())
    ended = oz_run("sub", "time.*.east", "--connect", endpoint, "--count", "1")
    assert (ended.code, ended.stdout) == (0, b"time.new.east 12:00\n")
    assert publisher.end().code == 0


QUIET = ("pub", "sub", "record", "replay", "reply", "nameserver", "forwarder", "gateway", "bench")


@pytest.mark.parametrize("command", QUIET)
def test_commands_with_status_lines_have_quiet(oz_run, command):
    assert "-q, --quiet" in oz_run(command, "--help").stdout.decode()


def test_quiet_prints_no_status_lines(oz_start, oz_run):
    with library.Publisher("tcp://127.0.0.1:*") as publisher:
        quiet = oz_start("sub", "-q", "a", "--connect", publisher.endpoint, "--count", "1")
        publisher.wait_for_subscribers("a", timeout=60)
        publisher.publish("a", b"b")
        ended = quiet.end()
    assert (ended.code, ended.stdout) == (0, b"a b\n")
    assert "ready" not in ended.stderr
    with library.Subscriber(bind="tcp://127.0.0.1:*") as subscriber:
        subscriber.subscribe("a")
        receiving = Thread(lambda: subscriber.receive(timeout=60))
        ended = oz_run("pub", "--quiet", "a", "b", "--connect", subscriber.endpoint, "--wait", "60")
        assert (ended.code, ended.stderr) == (0, "")
        assert receiving.outcome(60).payload == b"b"


def test_quiet_prints_warnings(oz_run, endpoint):
    [line] = oz_run("pub", "-q", "a", "b", "--bind", endpoint, "--wait", "0").stderr.splitlines()
    assert "no subscriber of a within 0 s" in line


def test_the_subscriber_may_bind(oz_start, oz_run):
    subscriber = oz_start("sub", "a", "--bind", "tcp://127.0.0.1:*", "--count", "1")
    endpoint = bound_to(subscriber.ready_line())
    assert oz_run("pub", "a", "b", "--connect", endpoint, "--wait", "60").code == 0
    assert subscriber.end().stdout == b"a b\n"


def test_the_subscriber_names_endpoints_where_nothing_answers(oz_start, endpoint):
    where = ("--connect", "tcp://nobody.invalid:5750", "--connect", endpoint)
    subscriber = oz_start("sub", "a", *where, "--count", "1")
    line = subscriber.ready_line()
    assert line.startswith("oz sub: not ready within 1 s: ")
    for one in ("tcp://nobody.invalid:5750", endpoint):
        assert f"nothing answers at {one} (link endpoint " in line


@pytest.fixture
def only_here():
    """Keep other runs of these tests on this host away from the endpoint that both would bind to."""
    with (Path(tempfile.gettempdir()) / f"oz-tests-{os.geteuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("only_here")
def test_without_options_they_meet_on_the_documented_endpoint(oz_start, oz_run, oz):
    assert all(DEFAULT_ENDPOINT in oz(command, "--help").stdout for command in ("pub", "sub"))
    host, _, port = DEFAULT_ENDPOINT.removeprefix("tcp://").rpartition(":")
    with socket.socket() as probe:
        if probe.connect_ex((host, int(port))) == 0:
            pytest.skip(f"something else on this machine has {DEFAULT_ENDPOINT}")
    subscriber = oz_start("sub", "meet.here", "--count", "1")
    assert DEFAULT_ENDPOINT in subscriber.ready_line()
    ended = oz_run("pub", "meet.here", "now", "--wait", "60")
    assert f"bound to {DEFAULT_ENDPOINT}" in ended.stderr
    assert subscriber.end().stdout == b"meet.here now\n"


def test_pub_alone_says_so_and_exits_3(oz_run):
    ended = oz_run("pub", "time.new.east", "12:00", "--bind", "tcp://127.0.0.1:*", "--wait", "0.1")
    assert ended.code == 3
    assert ended.stderr.splitlines()[1:] == [
        "oz pub: no subscriber of time.new.east within 0.1 s; nothing was published"
    ]


def test_a_subscriber_of_something_else_is_nobody(oz_start, oz_run, endpoint):
    oz_start("sub", "time.old.*", "--connect", endpoint).ready_line()
    assert oz_run("pub", "time.new.east", "12:00", "--bind", endpoint, "--wait", "0.5").code == 3


def test_each_line_of_stdin_is_a_payload(oz_start, oz_run, endpoint):
    subscriber = oz_start("sub", "log.*", "--connect", endpoint, "--count", "3")
    publish(oz_run, endpoint, "log.web", stdin=b"one two\n\nlast")
    assert subscriber.end().lines == ["log.web one two", "log.web ", "log.web last"]


def test_lines_of_subject_and_payload(oz_start, oz_run, endpoint):
    subscriber = oz_start("sub", "a.*", "b.*", "--connect", endpoint, "--count", "3")
    publish(oz_run, endpoint, "-", stdin=b"a.x one two\n\nb.y\na.z three\n")
    assert subscriber.end().lines == ["a.x one two", "b.y ", "a.z three"]


def test_lines_that_nobody_wants_are_counted(oz_start, endpoint):
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.rcvtimeo = 60_000
        subscriber.connect(endpoint)
        subscriber.subscribe("b.x")
        running = oz_start("pub", "-", "--bind", endpoint, "--wait", "60", stdin=subprocess.PIPE)
        running.process.stdin.write(b"b.x one\n")
        assert subscriber.recv_multipart() == [b"b.x", b"one"]
        subscriber.unsubscribe("b.x")
        subscriber.subscribe("a.y")
        # It knows that nobody wants `b.x` any more once it has heard of `a.y`.
        running.process.stdin.write(b"a.y two\n")
        assert subscriber.recv_multipart() == [b"a.y", b"two"]
        ended = running.end(b"b.x three\n")
    assert ended.code == 0
    assert ended.stderr.splitlines()[-1] == "oz pub: 1 of 3 messages had no subscriber"


def test_lines_that_nobody_wants_at_all_exit_3(oz_run, endpoint):
    assert oz_run("pub", "-", "--bind", endpoint, "--wait", "0.1", stdin=b"b.x one\nb.y two\n").code == 3


def test_json_is_one_object_a_line_and_exact(oz_start, oz_run, endpoint):
    subscriber = oz_start("sub", "redis:*", "--connect", endpoint, "--count", "2", "--json")
    publish(oz_run, endpoint, "-", "--dialect", "redis", stdin=b"a:\xc3\xa9 caf\xc3\xa9\tx\nb:\xff \xfe\n")
    assert [json.loads(line) for line in subscriber.end().lines] == [
        {"subject": "a:é", "payload": "café\tx"},
        {"subject_base64": "Yjr/", "payload_base64": "/g=="},
    ]


def test_a_payload_that_is_not_utf8_or_not_one_line_stays_on_its_line(oz_start, oz_run, endpoint):
    subscriber = oz_start("sub", "a", "--connect", endpoint, "--count", "1")
    publish(oz_run, endpoint, "a", b"x\xff\n\x1b[31m")
    assert subscriber.end().stdout == b"a x\\xff\\n\\x1b[31m\n"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "a b \\xff c"),
        (
            ("--json",),
            '{"subject": "a", "payload": "b", "more": [{"payload_base64": "/w=="}, {"payload": "c"}]}',
        ),
    ],
)
def test_every_frame_of_a_plain_zeromq_publisher_is_shown(oz_start, endpoint, options, line):
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.bind(endpoint)
        subscriber = oz_start("sub", "a", "--connect", endpoint, "--count", "1", *options)
        assert publisher.poll(60_000)
        publisher.send_multipart([b"a", b"b", b"\xff", b"c"])
        assert subscriber.end().lines == [line]


def test_patterns_of_several_dialects(oz_start, endpoint):
    patterns = ("rv:Foo.*", "redis:bar:[ab]?", r"regex:^order\.(new|fill)$")
    subscriber = oz_start("sub", *patterns, "--connect", endpoint, "--count", "3")
    subjects = ("Foo.x", "order.old", "order.newer", "bar:c1", "order.new", "bar:a1")
    with library.Publisher(endpoint, dialect="redis") as publisher:
        for subject in ("Foo.x", "order.new", "bar:a1"):
            publisher.wait_for_subscribers(subject, timeout=60)
        for number, subject in enumerate(subjects):
            publisher.publish(subject, b"%d" % number)
        assert subscriber.end().lines == ["Foo.x 0", "order.new 4", "bar:a1 5"]


def test_sub_times_out_with_4(oz_run, endpoint):
    ended = oz_run("sub", "a", "--connect", endpoint, "--timeout", "0.1")
    assert ended.code == 4
    assert ended.stderr.splitlines()[-1] == "oz sub: no message for 0.1 s"


@pytest.mark.parametrize("command", [("sub", "a", "--connect"), ("pub", "a", "b", "--wait", "60", "--bind")])
def test_ctrl_c_ends_with_130_and_silence(oz_start, endpoint, command):
    running = oz_start(*command, endpoint)
    running.ready_line()
    running.interrupt()
    ended = running.end()
    assert (ended.code, ended.stderr) == (130, "")


def test_ctrl_c_ends_pub_while_it_reads_stdin(oz_start, endpoint):
    subscriber = oz_start("sub", "a", "--connect", endpoint)
    publisher = oz_start("pub", "a", "--bind", endpoint, "--wait", "60", stdin=subprocess.PIPE)
    publisher.ready_line()
    publisher.process.stdin.write(b"x\n")
    assert subscriber.stdout_line() == "a x"
    publisher.interrupt()
    assert publisher.end().code == 130


def test_a_reader_that_goes_away_ends_sub_quietly(oz_start, endpoint):
    read_end, write_end = os.pipe()
    subscriber = oz_start("sub", "a", "--connect", endpoint, stdout=write_end)
    os.close(write_end)
    subscriber.ready_line()
    os.close(read_end)
    ended = subscriber.end()
    assert (ended.code, ended.stderr) == (0, "")


@pytest.mark.heavy
def test_a_reader_that_goes_away_ends_a_busy_sub_quietly(oz_start, endpoint):
    subscriber = oz_start("sub", "a", "--connect", endpoint)
    publisher = oz_start("pub", "a", "x", "--bind", endpoint, "--wait", "60", "--count", "100000")
    assert subscriber.stdout_line() == "a x"
    subscriber.process.stdout.close()
    assert subscriber.process.wait(60) == 0
    assert publisher.end().code == 0
    assert len(subscriber.process.stderr.read().splitlines()) == 1


def test_a_subscriber_that_stands_still_is_waited_for(oz_start, endpoint):
    subscriber = oz_start("sub", "a", "--connect", endpoint, "--count", "20001")
    publisher = oz_start("pub", "a", "--bind", endpoint, "--wait", "60", stdin=subprocess.PIPE)
    publisher.process.stdin.write(b"first\n")
    assert subscriber.stdout_line() == "a first"
    subscriber.process.send_signal(signal.SIGSTOP)

    def feed():
        # Blocks while the command waits for the subscriber.
        publisher.process.stdin.write(b"".join(b"%d %s\n" % (n, b"x" * 200) for n in range(20_000)))
        publisher.process.stdin.close()

    feeding = Thread(feed)
    with pytest.raises(subprocess.TimeoutExpired):
        publisher.process.wait(0.5)
    subscriber.process.send_signal(signal.SIGCONT)
    assert [int(line.split()[1]) for line in subscriber.end().lines] == list(range(20_000))
    feeding.outcome()
    assert publisher.process.wait(60) == 0


def test_ctrl_c_does_not_wait_for_a_subscriber_that_stands_still(oz_start, endpoint):
    subscriber = oz_start("sub", "a", "--connect", endpoint)
    count = ("--count", "100000000")
    publisher = oz_start("pub", "a", "x" * 1000, "--bind", endpoint, "--wait", "60", *count)
    assert subscriber.stdout_line().startswith("a x")
    subscriber.process.send_signal(signal.SIGSTOP)
    publisher.interrupt()
    assert publisher.end().code == 130


@pytest.mark.parametrize("command", [("pub", "a", "b"), ("sub", "a")])
def test_an_address_in_use_is_one_line(oz_run, command):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        endpoint = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
        ended = oz_run(*command, "--bind", endpoint)
    assert ended.code == 1
    [line] = ended.stderr.splitlines()
    assert endpoint in line
    assert "bind to another endpoint" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "a", "b", "--bind", "nowhere"),
        ("pub", "a", "b", "--bind", "tcp://nowhere"),
        ("pub", "a", "b", "--bind", "tcp://127.0.0.1:5555x"),
        ("sub", "a", "--connect", "udp://127.0.0.1:5555"),
        ("pub", "a", "b", "--connect", "inproc://a"),
        ("pub", "a", "b", "--connect", "gopher://a:1"),
        ("sub", "a", "--connect", "tcp://127.0.0.1:port"),
        ("sub", "a..b"),
        ("sub",),
        ("pub",),
        ("pub", "a.*", "b"),
        ("pub", "a..b", "b"),
        ("pub", "a", "--count", "2"),
        ("pub", "-", "payload"),
    ],
)
def test_what_is_written_wrongly_exits_2_without_a_traceback(oz_run, arguments):
    ended = oz_run(*arguments)
    assert ended.code == 2
    assert "Traceback" not in ended.stderr


def test_an_unwise_subject_is_one_line_of_warning(oz_start, oz_run, endpoint):
    subscriber = oz_start("sub", "zmq:a", "--connect", endpoint, "--count", "1")
    ended = oz_run("pub", "a.*", "b", "--dialect", "rv", "--bind", endpoint, "--wait", "60")
    assert ended.code == 0
    [_, line] = ended.stderr.splitlines()
    assert line.startswith("oz pub: warning: ")
    assert subscriber.end().lines == ["a.* b"]
