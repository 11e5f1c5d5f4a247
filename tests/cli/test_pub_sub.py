"""`oz pub` and `oz sub` over sockets. The other side is the library, in a thread of the test."""

import importlib
import json
import signal
from contextlib import suppress
from pathlib import Path
from threading import Event

import click
import pytest
import zmq

import oz as library
from oz.cli.options import DEFAULT_ENDPOINT
from oz.cli.sub import _print_gap
from support.cases import each
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

sub_command = importlib.import_module("oz.cli.sub")


@pytest.fixture
def feed(endpoint):
    """Function that publishes messages in a thread, once a subscription for the first subject has arrived."""
    threads = []

    def start(*messages, **options):
        publisher = library.Publisher(endpoint, **options)

        def publish():
            with publisher:
                publisher.wait_for_subscribers(messages[0][0], timeout=DEADLINE)
                for subject, payload, *headers in messages:
                    publisher.publish(subject, payload, headers=headers[0] if headers else None)

        threads.append(Thread(publish))

    yield start
    for thread in threads:
        thread.outcome()


@pytest.fixture
def receive(endpoint):
    """Function that receives a number of messages in a thread, and returns the thread."""

    def start(pattern, count, **options):
        def run():
            with library.Subscriber(**options or {"connect": endpoint}) as subscriber:
                subscriber.subscribe(pattern)
                return [subscriber.receive(timeout=DEADLINE) for _ in range(count)]

        return Thread(run)

    return start


@pytest.fixture
def sub(oz_run, endpoint, monkeypatch):
    """Function that runs `oz sub` until it has a number of messages."""
    # `feed` closes its publisher, which then answers no more.
    monkeypatch.setattr(sub_command, "SOCKET_READY_SECONDS", 0.05)

    def run(*arguments, count=1):
        options = ("--connect", endpoint, "--count", str(count), "--timeout", "60")
        return oz_run("sub", *arguments, *options)

    return run


@pytest.fixture
def pub(oz_run, endpoint):
    """Function that runs `oz pub` with a subscriber to wait for."""

    def run(*arguments, stdin=None):
        return oz_run("pub", *arguments, "--bind", endpoint, "--wait", "60", stdin=stdin)

    return run


def subjects_and_payloads(thread):
    return [(message.subject, message.payload) for message in thread.outcome()]


def test_pub_delivers_a_payload_a_number_of_times(receive, pub):
    received = receive("a.*", 20)
    ended = pub("a.b", "x y", "--count", "20")
    assert (ended.code, len(ended.stderr.splitlines())) == (0, 1)
    assert subjects_and_payloads(received) == [("a.b", b"x y")] * 20


def test_sub_may_bind_and_pub_may_connect(oz_run, receive, endpoint):
    def publish():
        with library.Publisher(connect=endpoint) as publisher:
            publisher.wait_for_subscribers("a", timeout=DEADLINE)
            publisher.publish("a", b"b")

    publishing = Thread(publish)
    assert oz_run("sub", "a", "--bind", endpoint, "--count", "1").stdout == b"a b\n"
    publishing.outcome()
    received = receive("a", 1, bind=f"{endpoint}-2")
    assert oz_run("pub", "a", "b", "--connect", f"{endpoint}-2", "--wait", "60").code == 0
    assert subjects_and_payloads(received) == [("a", b"b")]


def test_without_options_they_use_the_documented_endpoint(oz_run, oz):
    assert all(DEFAULT_ENDPOINT in oz(command, "--help").stdout for command in ("pub", "sub"))
    # If another program has the endpoint, the error names it too.
    assert DEFAULT_ENDPOINT in oz_run("pub", "meet.here", "now", "--wait", "0").stderr
    assert DEFAULT_ENDPOINT in oz_run("sub", "meet.here", "--timeout", "0.1").stderr


QUIET = ("pub", "sub", "record", "replay", "reply", "nameserver", "forwarder", "gateway", "bench")


def test_quiet_prints_warnings_only(oz, oz_run, feed, sub, endpoint):
    assert all("-q, --quiet" in oz(command, "--help").stdout for command in QUIET)
    feed(("a", b"b"))
    assert "ready, connected" not in sub("-q", "a").stderr
    [line] = oz_run("pub", "-q", "a", "b", "--bind", f"{endpoint}-2", "--wait", "0").stderr.splitlines()
    assert "no subscriber of a within 0 s" in line


def test_pub_without_a_subscriber_exits_3(oz_run, endpoint):
    ended = oz_run("pub", "time.new.east", "12:00", "--bind", endpoint, "--wait", "0.1")
    assert ended.code == 3
    assert ended.stderr.splitlines()[1:] == [
        "oz pub: no subscriber of time.new.east within 0.1 s; nothing was published. Give a longer --wait"
    ]
    assert oz_run("pub", "-", "--bind", endpoint, "--wait", "0.1", stdin=b"b.x one\nb.y two\n").code == 3
    ended = oz_run("pub", "-", "--last-value", "--bind", endpoint, "--wait", "0", stdin=b"a.x 1\n")
    assert (ended.code, len(ended.stderr.splitlines())) == (0, 1)


def test_sub_names_each_endpoint_without_an_answer_and_exits_4(oz_run, endpoint):
    with library.Publisher(endpoint):
        ends = ("--connect", endpoint, "--connect", f"{endpoint}-2", "--connect", "tcp://nobody.invalid:5750")
        ended = oz_run("sub", "a", *ends, "--timeout", "0.3")
    assert ended.code == 4
    missing, silence = ended.stderr.splitlines()
    assert missing.startswith("oz sub: not ready within 0.3 s: ")
    for item in (f"{endpoint}-2", "tcp://nobody.invalid:5750"):
        assert f"nothing answers at {item} (link endpoint " in missing
    assert f"at {endpoint} " not in missing
    assert silence.startswith("oz sub: no message for 0.3 s; no publisher answers at ")


def test_sub_names_a_message_that_no_pattern_matches(oz_run, endpoint):
    def publish():
        publisher.wait_for_subscribers("time.us.west", timeout=DEADLINE)
        publisher.publish("time.us.west", b"")

    with library.Publisher(endpoint) as publisher:
        thread = Thread(publish)
        ended = oz_run("sub", "time.*.east", "--connect", endpoint, "--filtering", "prefix", "--timeout", "2")
        thread.outcome()
    assert ended.code == 4
    assert "; 1 message, such as 'time.us.west', passed the prefix, but no pattern matched" in ended.stderr


def test_sub_is_ready_when_a_publisher_starts_later(oz_run, endpoint, monkeypatch):
    is_reported, original = Event(), sub_command.print_stderr
    monkeypatch.setattr(sub_command, "SOCKET_READY_SECONDS", 0.05)
    monkeypatch.setattr(sub_command, "print_stderr", lambda *given: (original(*given), is_reported.set()))

    def publish():
        assert is_reported.wait(DEADLINE)
        with library.Publisher(endpoint) as publisher:
            publisher.wait_for_subscribers("a.b", timeout=DEADLINE)
            publisher.publish("a.b", b"1")

    publishing = Thread(publish)
    ended = oz_run("sub", "*.b", "--filtering", "publisher", "--connect", endpoint, "--count", "1")
    publishing.outcome()
    assert ended.lines == ["a.b 1"]
    assert ended.stderr.startswith("oz sub: not ready within 0.05 s: ")


def test_each_line_of_stdin_is_a_payload_or_a_subject_and_a_payload(receive, pub):
    received = receive("log.*", 3)
    assert pub("log.web", stdin=b"one two\n\nlast").code == 0
    assert subjects_and_payloads(received) == [("log.web", item) for item in (b"one two", b"", b"last")]
    received = receive(["a.*", "b.*"], 3)
    assert pub("-", stdin=b"a.x one two\n\nb.y\na.z three\n").code == 0
    assert subjects_and_payloads(received) == [("a.x", b"one two"), ("b.y", b""), ("a.z", b"three")]


def test_lines_without_a_subscriber_are_counted(pub, endpoint):
    def receive():
        with library.Subscriber(endpoint) as subscriber:
            for subject in ("b.x", "a.y"):
                # `oz pub` waits for a subscriber of `a.y`. Then the end of `b.x` has arrived too.
                subscription = subscriber.subscribe(subject)
                subscriber.receive(timeout=DEADLINE)
                subscription.unsubscribe()

    receiving = Thread(receive)
    ended = pub("-", stdin=b"b.x one\na.y two\nb.x three\n")
    receiving.outcome()
    assert ended.code == 0
    assert ended.stderr.splitlines()[-1] == "oz pub: 1 of 3 messages had no subscriber: check their subjects"


@pytest.mark.parametrize("stdin", [b"a x\n\na..b y\n", b"a x\n\n\xff y\n"])
def test_pub_names_the_number_of_a_wrong_line(receive, pub, stdin):
    received = receive("a", 1)
    ended = pub("-", stdin=stdin)
    assert ended.code == 2
    assert ended.stderr.splitlines()[-1].startswith("oz pub: line 3: ")
    assert subjects_and_payloads(received) == [("a", b"x")]


def test_json_is_an_object_a_line_and_exact(feed, sub):
    feed(("a:é", "café\tx".encode()), (b"b:\xff", b"\xfe", {"x": "y"}), dialect="redis")
    assert [json.loads(line) for line in sub("redis:*", "--json", count=2).lines] == [
        {"subject": "a:é", "payload": "café\tx"},
        {"subject_base64": "Yjr/", "payload_base64": "/g=="},
    ]


def test_text_stays_on_its_line(feed, sub):
    feed(("a", b"x\xff\n\x1b[31m"))
    assert sub("a").stdout == b"a x\\xff\\n\\x1b[31m\n"


def test_frames_of_a_plain_publisher_are_printed(sub, endpoint):
    more = '{"subject": "a", "payload": "b", "more": [{"payload_base64": "/w=="}, {"payload": "c"}]}'
    for options, line in ((), "a b \\xff c"), (("--json",), more):
        with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
            publisher.bind(endpoint)

            def send(publisher=publisher):
                assert publisher.poll(DEADLINE * 1000)
                publisher.send_multipart([b"a", b"b", b"\xff", b"c"])

            sending = Thread(send)
            assert sub("a", *options).lines == [line]
            sending.outcome()


def test_headers_of_each_kind_are_printed(feed, sub):
    headers = {"n": 1, "no": None, "raw": b"\xff", "line": "1\n\x9b2"}
    feed(("a", b"b", headers), ("a", b"b"))
    shown = 'a {"n": 1, "no": null, "raw_base64": "/w==", "line": "1\\n\\u009b2"} b'
    assert sub("a", "--headers", count=2).lines == [shown, "a {} b"]


@pytest.mark.parametrize(
    ("template", "output"),
    [
        ("{subject} {payload}", b"a b\\n\n"),
        ("{payload}\\t{headers}\\0", b'b\\n\t{"n": 1}\0\n'),
        ("{{}}", b"{}\n"),
    ],
)
def test_format_writes_the_fields(feed, sub, template, output):
    feed(("a", b"b\n", {"n": 1}))
    assert sub("a", "--count", "1", "--format", template).stdout == output


def test_pub_sends_headers(receive, pub):
    received = receive("a", 1)
    assert pub("a", "b c", "--header", "user=änn", "--header", "trace=7=f").code == 0
    assert dict(received.outcome()[0].headers) == {"user": "änn", "trace": "7=f"}


def test_key_sends_all_subjects_to_one_member(pub, endpoint):
    def receive():
        with library.Subscriber(endpoint) as one, library.Subscriber(endpoint) as other:
            for member in (one, other):
                member.subscribe("job.*", group="workers", delivery=library.Delivery(policy="sticky"))
            for member in (one, other):
                member.wait_ready(timeout=DEADLINE)
            # `oz pub` waits for a subscriber of its first line.
            one.subscribe("start", max_messages=1)
            counts = [0, 0]

            def has_all():
                for at, member in enumerate((one, other)):
                    with suppress(library.Timeout):
                        counts[at] += len(member.receive_many(timeout=0.02))
                return sum(counts) == 21

            until(has_all)
            return sorted(counts)

    receiving = Thread(receive)
    lines = b"start x\n" + b"".join(b"job.%d x\n" % number for number in range(20))
    assert pub("-", "--key", "same", stdin=lines).code == 0
    assert receiving.outcome() in ([0, 21], [1, 20])


def test_last_values_are_sent_first(oz_run, endpoint, receive, stdin):
    reading, writing = stdin
    writing.write(b"a.x 1\na.x 2\na.y 3\n")

    def join_late():
        first = receive("a.*", 3)
        assert subjects_and_payloads(first) == [("a.x", b"1"), ("a.x", b"2"), ("a.y", b"3")]
        with library.Subscriber(endpoint) as late:
            late.subscribe("a.*", last_value=True)
            found = [late.receive(timeout=DEADLINE) for _ in range(2)]
        writing.close()
        return [(message.subject, message.payload) for message in found]

    joining = Thread(join_late)
    ended = oz_run("pub", "-", "--last-value", "--bind", endpoint, "--wait", "60", stdin=reading)
    assert (ended.code, joining.outcome()) == (0, [("a.x", b"2"), ("a.y", b"3")])
    with library.Publisher(endpoint, last_value=True) as publisher:
        publisher.publish("a.x", b"1")
        publisher.publish("a.x", b"2")
        assert oz_run("sub", "a.*", "--last-value", "--connect", endpoint, "--count", "1").lines == ["a.x 2"]


def test_ctrl_c_ends_pub_while_it_reads_stdin(oz_run, endpoint, receive, signal_when, stdin):
    reading, writing = stdin
    received = receive("a", 1)
    writing.write(b"x\n")
    signal_when(lambda: subjects_and_payloads(received) == [("a", b"x")])
    assert oz_run("pub", "a", "--bind", endpoint, "--wait", "60", stdin=reading).code == 130


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux's /proc to see a blocked process")
def test_ctrl_c_ends_the_wait_for_a_slow_subscriber_and_reports_unsent_messages(endpoint):
    # The signal leaves an open context of ZeroMQ, so that the command needs its own process.
    lines = [f"{number} {bytes(20_000).hex()}" for number in range(200)]
    with (
        library.Subscriber(bind=endpoint, options=library.Options(high_water_mark=1)) as slow,
        started("-m", "oz", "pub", "a.b", "--connect", endpoint, "--wait", "60") as process,
    ):
        slow.subscribe("a.*")
        writing = Thread(lambda: process.communicate("\n".join(lines)))
        slow.receive(timeout=DEADLINE)
        counts = Path(f"/proc/{process.pid}/io")
        seen = [None] * 50

        def reads_no_more():
            seen[:] = [*seen[1:], counts.read_text()]
            return len(set(seen)) == 1

        until(reads_no_more)
        process.send_signal(signal.SIGINT)
        _, err = writing.outcome()
    assert process.returncode == 1
    assert "unsent: a subscriber has not received the last of the 200" in err


@pytest.mark.parametrize("command", [("pub", "a", "b"), ("sub", "a"), ("nameserver",)])
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_endpoint_in_use_is_an_error_of_one_line(oz, endpoint, command, transport):
    with library.Publisher("tcp://127.0.0.1:*" if transport == "tcp" else endpoint) as holder:
        taken = holder.endpoint
        result = oz(*command, "--bind", taken)
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert taken.removeprefix("ipc://") in line
    assert line.count("bind to another") == 1


def test_unwise_subject_is_a_warning_of_one_line(receive, pub):
    received = receive("zmq:a", 1)
    ended = pub("a.*", "b", "--dialect", "rv")
    assert ended.code == 0
    [_, line] = ended.stderr.splitlines()
    assert line.startswith("oz pub: warning: ")
    assert subjects_and_payloads(received) == [("a.*", b"b")]


@each(
    "count, text",
    [
        (1, "1 message of publisher 00000000… was lost (lost)"),
        (12, "12 messages of publisher 00000000… were lost (lost)"),
        (None, "messages of publisher 00000000… may be lost, their number is unknown (lost)"),
    ],
)
def test_gap_is_reported(capsys, count, text):
    with click.Context(click.Command("sub"), info_name="sub") as ctx:
        _print_gap(ctx, library.Gap(bytes(16), count, 0, "lost"))
    assert capsys.readouterr().err == f"sub: {text}\n"
