import json
import os
import pty
import signal
import subprocess
import sys
import tempfile

import pytest

import oz
from oz.journal import Journal, Writer
from support import waiting
from support.ports import lasting_endpoint


@pytest.fixture
def publisher():
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub:
        yield pub


def end_of(directory):
    try:
        return Journal(directory).end_offset
    except oz.JournalError:
        return 0


@pytest.mark.parametrize(("ending", "filtering"), [(signal.SIGINT, "prefix"), (signal.SIGTERM, "publisher")])
def test_a_signal_ends_it_with_all_recorded_and_a_summary(oz_start, publisher, tmp_path, ending, filtering):
    directory = tmp_path / "recorded"
    arguments = ("--journal", str(directory), "--connect", publisher.endpoint, "--filtering", filtering)
    running = oz_start("record", "a.*", "rv:b.>", *arguments)
    ready = running.ready_line()
    assert (
        ready
        == f"oz record: ready, connected to {publisher.endpoint}, recording in {directory} from offset 0"
    )
    count = 2 if filtering == "prefix" else 1
    publisher.wait_for_subscribers(count=count, timeout=waiting.DEADLINE)
    for at in range(3000):
        publisher.publish("a.1" if at % 2 else "b.1", b"%d" % at)
    publisher.flush()
    if filtering == "prefix":
        waiting.until(lambda: end_of(directory) == 3000)
    running.process.send_signal(ending)
    ended = running.end()
    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr == "oz record: recorded 3000 messages, up to offset 3000; 0 known to be lost\n"
    assert [record.payload for record in Journal(directory).read()] == [b"%d" % at for at in range(3000)]


def test_what_is_published_again_is_recorded_once(oz_start, publisher, tmp_path):
    directory = tmp_path / "recorded"
    arguments = ("--journal", str(directory), "--connect", publisher.endpoint, "--filtering", "publisher")
    running = oz_start("record", "a", "--dedupe", *arguments)
    running.ready_line()
    publisher.wait_for_subscribers(timeout=waiting.DEADLINE)
    for number in (0, 1, 0, 1, 2):
        publisher.publish("a", b"%d" % number, id=(b"run", number))
    publisher.flush()
    running.interrupt()
    assert running.end().code == 0
    assert [record.payload for record in Journal(directory).read()] == [b"0", b"1", b"2"]


def test_it_binds_and_goes_on_with_a_journal_that_is_there(oz_start, tmp_path):
    directory = tmp_path / "recorded"
    with Writer(directory) as writer:
        writer.append([("a.0", b"0")])
    running = oz_start("record", "a.*", "--journal", str(directory), "--bind", "tcp://127.0.0.1:*")
    ready = running.ready_line()
    assert ready.endswith("from offset 1")
    with oz.Publisher(connect=ready.split("bound to ")[1].split(",")[0]) as pub:
        pub.wait_for_subscribers(timeout=waiting.DEADLINE)
        pub.publish("a.1", b"1")
        waiting.until(lambda: end_of(directory) == 3)
    running.interrupt()
    assert running.end().code == 0
    assert [getattr(one, "payload", None) for one in Journal(directory).read()] == [b"0", None, b"1"]


def test_a_publisher_that_does_not_answer_is_said_and_ready_when_it_does(oz_start, tmp_path):
    endpoint = lasting_endpoint()
    directory = tmp_path / "recorded"
    running = oz_start(
        "record", "a.*", "--journal", str(directory), "--connect", endpoint, "--filtering", "publisher"
    )
    assert f"nothing answers at {endpoint}" in running.line_with(running.process.stderr, b"not ready")
    with oz.Publisher(endpoint) as pub:
        assert running.ready_line().startswith("oz record: ready")
        pub.publish("a.1", b"1")
        pub.flush()
        waiting.until(lambda: end_of(directory) == 1)


def test_options_reach_the_writer(oz_start, publisher, tmp_path):
    directory = tmp_path / "recorded"
    running = oz_start(
        "record", "a.*", "--journal", str(directory), "--connect", publisher.endpoint, "--sync", "none",
        "--segment-bytes", "10K", "--retain-bytes", "40k", "--segment-seconds", "9", "--retain-seconds", "9",
    )  # fmt: skip
    running.ready_line()
    publisher.wait_for_subscribers(timeout=waiting.DEADLINE)

    def goes_on():
        for _ in range(50):
            publisher.publish("a.1", os.urandom(500))
        return Journal(directory).first_offset > 0

    waiting.until(goes_on)


def test_a_journal_that_somebody_writes_is_refused_in_one_line(oz_start, tmp_path):
    with Writer(tmp_path / "recorded"):
        ended = oz_start("record", "a.*", "--journal", str(tmp_path / "recorded")).end()
    assert ended.code == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith("oz record: ")
    assert str(os.getpid()) in line


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("a.*",), "--journal"),
        (("--journal", "x"), "PATTERN"),
        (("a..b", "--journal", "x"), "a..b"),
        (("a", "--journal", "x", "--segment-bytes", "0"), "64M"),
        (("a", "--journal", "x", "--retain-bytes", "5 GB"), "64M"),
        (("a", "--journal", "x", "--retain-seconds", "0"), "0"),
        (("a", "--journal", "x", "--connect", "nowhere"), "nowhere"),
        (("a", "--journal", "x", "--sync", "often"), "batch"),
        (("a", "--journal", "x", "--sync", "0"), "batch"),
        (("a", "--journal", "x", "--dedupe", "--filtering", "prefix"), "--filtering prefix"),
        (("a", "--journal", "x", "--group", "g", "--filtering", "prefix"), "--filtering prefix"),
        (("a", "--journal", "x", "--dedupe", "--bus", "b"), "--bus"),
        (("a", "--journal", "x", "--filtering", "publisher", "--bus", "b"), "--bus"),
        (("a", "--journal", "x", "--bus", "b", "--connect", "udp://127.0.0.1:9"), "--connect"),
    ],
)
def test_wrong_usage_exits_2(oz, tmp_path, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    result = oz("record", *arguments)
    assert result.exit_code == 2
    assert word in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_once_and_left_with_an_error(publisher, tmp_path):
    """A limit on the size of files stands for a full disk."""
    directory = tmp_path / "recorded"
    # What is compiled under the limit would be cut short too, and stay so.
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "sys.dont_write_bytecode = True\n"
        "sys.argv[0] = 'oz'; from oz.cli import main; main()"
    )
    command = ("record", "a.*", "--journal", directory, "--connect", publisher.endpoint)
    with subprocess.Popen([sys.executable, "-c", script, *command], stderr=subprocess.PIPE) as process:
        publisher.wait_for_subscribers(timeout=waiting.DEADLINE)
        publisher.publish("a.1", bytes(5000))
        assert b"ready" in process.stderr.readline()
        assert b"free space" in process.stderr.readline()
        publisher.publish("a.1", bytes(5000))
        process.send_signal(signal.SIGINT)
        lines = process.stderr.read().decode().splitlines()
        assert process.wait(60) == 1
    assert "could not be recorded" in lines[0]
    assert "File too large" in lines[1]
    assert len(lines) == 2


def test_on_a_terminal_it_shows_how_it_goes(publisher, tmp_path):
    controller, terminal = pty.openpty()
    command = ("record", "a.*", "--journal", tmp_path / "recorded", "--connect", publisher.endpoint)
    with subprocess.Popen([sys.executable, "-m", "oz", *command], stderr=terminal) as process:
        os.close(terminal)
        seen = b""

        def shown():
            nonlocal seen
            publisher.publish("a.1", b"x")
            seen += os.read(controller, 4096)
            return b" pending  " in seen and b" 0 lost" in seen

        waiting.until(shown)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    os.close(controller)


@pytest.mark.heavy
def test_without_pyarrow_the_line_to_install_is_said(tmp_path):
    script = "import sys; sys.modules['pyarrow'] = None; sys.argv[0] = 'oz'; from oz.cli import main; main()"
    for command in (("record", "a", "--journal", "x"), ("replay", "x")):
        ran = subprocess.run(
            [sys.executable, "-c", script, *command], capture_output=True, text=True, timeout=60,
            cwd=tmp_path, check=False,
        )  # fmt: skip
        assert ran.returncode == 1
        [line] = ran.stderr.splitlines()
        assert "oz.journal needs pyarrow" in line
        assert "pip install '.[journal]'" in line


def test_what_was_recorded_can_be_exported(oz_start, oz, publisher, tmp_path):
    directory = tmp_path / "recorded"
    running = oz_start("record", "a.*", "--journal", str(directory), "--connect", publisher.endpoint)
    running.ready_line()
    publisher.wait_for_subscribers(timeout=waiting.DEADLINE)
    publisher.publish("a.1", b"one")
    waiting.until(lambda: end_of(directory) == 1)
    [line] = oz("journal", "export", str(directory)).stdout.splitlines()
    assert (json.loads(line)["subject"], json.loads(line)["payload"]) == ("a.1", "one")


def test_a_bus_is_recorded(oz_start, tmp_path):
    directory = tmp_path / "recorded"
    with (
        tempfile.TemporaryDirectory() as nodes,
        oz.Node("speaker", bus="recorded", options=oz.NodeOptions(directory=nodes)) as speaker,
    ):
        running = oz_start(
            "record", "a.>", "--journal", str(directory), "--bus", "recorded", "--directory", nodes
        )
        assert "on bus recorded" in running.ready_line()
        speaker.wait_for_subscribers("a.1", timeout=waiting.DEADLINE)
        for at in range(300):
            speaker.publish("a.1", {"n": at})
        speaker.flush()
        waiting.until(lambda: end_of(directory) == 300)
        running.terminate()
        ended = running.end()
    assert ended.code == 0
    assert "recorded 300 messages" in ended.stderr
    assert [one.payload for one in Journal(directory, codec="msgpack").read()] == [
        {"n": at} for at in range(300)
    ]
