"""`oz bench`: that it runs, counts to the message and ends; how fast things are is no matter here."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
import zmq

import oz
from oz.cli.measuring import running
from oz.cli.measuring.plan import BenchFailed, BenchPlan, Latency, Result
from oz.cli.measuring.running import Child
from support.forking import ForkedProgram
from support.sizes import in_suite
from support.waiting import until

FIGURES = ["p50_us", "p90_us", "p99_us", "p99.9_us", "max_us"]
QUICK = ("--seconds", "0.4")
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


def check(result, subscribers, fraction):
    assert result["published"] > 0
    assert (
        result["published"] * fraction - 1000 <= result["matching"] <= result["published"] * fraction + 1000
    )
    assert result["delivered"] == result["matching"] * subscribers
    wanted = result["published"] * subscribers if result["filtering"] == "prefix" else result["delivered"]
    assert result["received"] == wanted
    assert result["lost"] == 0
    assert result["published_per_second"] > 0
    assert result["delivered_per_second"] > 0
    for phase in ("lone", "loaded"):
        latency = result[f"latency_{phase}"]
        assert latency["samples"] > 0
        figures = [latency[name] for name in FIGURES]
        assert figures == sorted(figures)
        assert figures[0] > 0


def test_alone_it_measures_both_filterings_and_every_message_is_counted(oz_run):
    options = ("--match", "0.1", "--subscribers", "2", "--size", "50", "--json", *QUICK)
    ended = oz_run("bench", *options)
    assert ended.code == 0, ended.stderr
    [line] = ended.stderr.splitlines()
    assert line.startswith("oz bench: ready, on this machine, tcp://127.0.0.1:")
    data = json.loads(ended.stdout)
    assert [result["filtering"] for result in data["results"]] == ["prefix", "publisher"]
    assert (data["size"], data["subjects"], data["matching_subjects"]) == (50, 1000, 100)
    assert (data["subscribers"], data["latency"], data["interrupted"]) == (2, "one way", False)
    for result in data["results"]:
        check(result, 2, 0.1)


@pytest.mark.parametrize("size", in_suite(["100000"], ["0"]))
def test_small_and_large_messages(oz_run, size):
    ended = oz_run("bench", "--size", size, "--json", *QUICK)
    assert ended.code == 0, ended.stderr
    for result in json.loads(ended.stdout)["results"]:
        check(result, 1, 1.0)


def test_the_table_has_a_column_for_each_filtering_and_is_plain_when_piped(oz, monkeypatch):
    def measure(run, plan):
        latency = {phase: Latency.of([5000]) for phase in ("lone", "loaded")}
        run.results.append(Result(plan.filtering, plan.size, published=1, matching=1, latency=latency))

    monkeypatch.setattr("oz.cli.measuring.running.BenchRun.measure", measure)
    ended = oz("bench", *QUICK)
    assert ended.exit_code == 0
    heading, *rows = (re.split(r"\s{2,}", line) for line in ended.stdout.splitlines())
    assert heading == ["filtering", "prefix", "publisher"]
    assert all(len(row) == 3 for row in rows)
    assert ["lost", "0", "0"] in rows
    assert [row[0] for row in rows[-2:]] == ["loaded, one way, p99.9, µs", "loaded, one way, max, µs"]


@pytest.mark.parametrize(
    ("kind", "filterings"), in_suite([("ipc", ["publisher"])], [("tcp", ["both", "publisher"])])
)
def test_between_two_machines_latency_is_that_of_round_trips(oz_start, oz_run, tmp_path, kind, filterings):
    given = "tcp://127.0.0.1:*" if kind == "tcp" else f"ipc://{tmp_path}/bench"
    listener = oz_start("bench", "--listen", given)
    endpoint = re.search(r"ready, bound to (\S+)", listener.ready_line()).group(1)
    for filtering in filterings:
        # Longer than the others: a message has to go there and back in half of that.
        options = ("--json", "--filtering", filtering, "--seconds", "2")
        ended = oz_run("bench", "--connect", endpoint, *options)
        assert ended.code == 0, ended.stderr
        assert ended.stderr.startswith(f"oz bench: ready, connected to {endpoint}: ")
        data = json.loads(ended.stdout)
        assert data["latency"] == "round trip"
        assert len(data["results"]) == (2 if filtering == "both" else 1)
        for result in data["results"]:
            check(result, 1, 1.0)
    listener.interrupt()
    ended = listener.end()
    assert (ended.code, ended.stderr) == (130, "")


def test_nobody_at_the_other_end_is_one_line(oz, monkeypatch, tmp_path):
    monkeypatch.setattr(running, "ANSWER_SECONDS", 0.2)
    result = oz("bench", "--connect", f"ipc://{tmp_path}/nobody")
    assert result.exit_code == 1
    line = f"oz bench: no `oz bench --listen` answered at ipc://{tmp_path}/nobody for 0.2 s\n"
    assert result.stderr == line


def test_what_is_lost_is_said_and_exits_1(oz, monkeypatch):
    def measure(run, plan):
        run.results.append(Result(plan.filtering, plan.size, lost=1))

    monkeypatch.setattr("oz.cli.measuring.running.BenchRun.measure", measure)
    result = oz("bench")
    assert result.exit_code == 1
    assert result.stderr.endswith("oz bench: 2 messages were lost\n")


class Screen:
    """`oz` on a terminal."""

    def __init__(self, *arguments):
        self._ours, theirs = pty.openpty()
        environment = os.environ | {"COLUMNS": "80", "TERM": "xterm"}
        words = ["-m", "oz", *arguments]
        self.process = ForkedProgram(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self.shown = ""

    def read(self):
        try:
            more = os.read(self._ours, 65_536).decode(errors="replace")
        except OSError:  # how Linux says that the other side is closed
            more = ""
        self.shown += more
        return bool(more)

    def read_until(self, text, times=1):
        while self.shown.count(text) < times:
            assert self.read(), self.shown

    def end(self):
        while self.read():
            pass
        os.close(self._ours)
        return self.process.wait(60), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.shown)


@pytest.fixture
def on_screen():
    started = []

    def start(*arguments):
        started.append(Screen(*arguments))
        return started[-1]

    yield start
    for screen in started:
        screen.process.kill()
        screen.process.wait()


@pytest.mark.parametrize(
    ("moment", "expected"),
    in_suite([("publisher, loaded", r"lost +0 ")], [("publisher, lone", r"delivered +- ")]),
)
def test_ctrl_c_ends_with_what_was_measured_so_far(on_screen, moment, expected):
    # Half of it is the time that there is for Ctrl-C, but also for all before it.
    seconds = "8" if "loaded" in moment else "3600"
    screen = on_screen("bench", "--filtering", "publisher", "--seconds", seconds)
    # It is drawn ten times a second: once may be before the first message.
    screen.read_until(moment, times=1 if "loaded" in moment else 10)
    screen.process.send_signal(signal.SIGINT)
    code, shown = screen.end()
    assert code == 130
    table = shown[shown.index("subscriber ") :]
    assert re.search(expected, table), table
    assert re.search(r"lone, one way, p50, µs +\d", table), table
    assert max(map(len, table.splitlines())) <= 80


def children(process_id):
    return [
        int(child) for child in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    ]


def is_there(process_id):
    with contextlib.suppress(OSError):
        # A process that ended, but that nobody waited for, is a zombie.
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def subscriber_of(running):
    def find():
        for child in children(running.process.pid):
            if b"oz.cli.measuring.subscribing" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        return None

    return until(find)


@needs_proc
def test_a_subscriber_that_is_killed_is_noticed_and_nothing_is_left(oz_start):
    running = oz_start("bench", "--seconds", "60")
    running.ready_line()
    os.kill(subscriber_of(running), signal.SIGKILL)
    publishers = children(running.process.pid)
    ended = running.end()
    assert ended.code == 1
    assert ended.stderr == "oz bench: a subscriber process ended with status -9: it said nothing\n"
    assert not any(map(is_there, publishers))


@needs_proc
def test_whoever_is_killed_leaves_no_process_and_meanwhile_nobody_else_measures(oz_start, oz_run):
    listener = oz_start("bench", "--listen", "tcp://127.0.0.1:*")
    endpoint = re.search(r"ready, bound to (\S+)", listener.ready_line()).group(1)
    running = oz_start("bench", "--connect", endpoint, "--seconds", "60")
    running.ready_line()
    subscriber = subscriber_of(running)
    ended = oz_run("bench", "--connect", endpoint, "--json", *QUICK)
    assert (ended.code, ended.stdout) == (1, b"")
    assert "somebody else is measuring; try again later" in ended.stderr
    # It cannot tell the subscriber to end, as it would after a while.
    listener.process.send_signal(signal.SIGSTOP)
    running.process.kill()
    until(lambda: not is_there(subscriber))


def test_a_subscriber_that_is_to_finish_says_what_it_has():
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        given = {"plan": asdict(BenchPlan("prefix")), "data": pub.endpoint, "echo": None, "number": 0}
        child = Child("a subscriber process", "subscribing", json.dumps(given))
        try:
            assert child.hear(60) == {"ready": True}
            child.finish()
            said = child.hear(60)
            assert (said["delivered"], said["received"], said["times"]) == (0, 0, [])
            with pytest.raises(BenchFailed, match="ended with status 0"):
                child.hear(60)
        finally:
            child.end()


@pytest.mark.heavy
@needs_proc
def test_whoever_is_killed_frees_the_listener_after_a_while(oz_start, oz_run):
    listener = oz_start("bench", "--listen", "tcp://127.0.0.1:*")
    endpoint = re.search(r"ready, bound to (\S+)", listener.ready_line()).group(1)
    running = oz_start("bench", "--connect", endpoint, "--seconds", "60")
    running.ready_line()
    subscriber_of(running)
    running.process.kill()
    second = ("bench", "--connect", endpoint, "--json", "--filtering", "prefix", *QUICK)
    assert until(lambda: (ended := oz_run(*second)).code == 0 and ended).lines


@pytest.mark.heavy
@needs_proc
def test_a_subscriber_that_stands_still_is_given_up(on_screen):
    screen = on_screen("bench", "--filtering", "prefix", "--seconds", "2", "--size", "10000")
    screen.read_until("prefix, loaded")
    os.kill(subscriber_of(screen), signal.SIGSTOP)
    code, shown = screen.end()
    assert code == 1
    assert "a subscriber took nothing for 5 s" in shown


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (b"\xff", "not understood"),
        (b"[]", "not understood"),
        (b'{"do": "start"}', "not understood"),
        (b"[" * 9000, "not understood"),
        (b'{"do": "look", "session": 1}', "has given this measurement up"),
        (b'{"do": "start", "session": 1, "version": 9, "plan": {}}', "this side speaks version 2"),
        (b'{"do": "start", "session": 1, "version": 2, "plan": {"filtering": "x"}}', "out of bounds"),
        (b'{"do": "start", "session": 1, "version": 2, "plan": {"colour": 1}}', "something unknown here"),
        (
            b'{"do": "start", "session": 1, "version": 2, "plan": {"filtering": "prefix", "size": "9"}}',
            "something unknown here: size",
        ),
        (
            b'{"do": "start", "session": 1, "version": 2, "plan": {"filtering": "prefix", "seconds": 1e9}}',
            "out of bounds",
        ),
    ],
)
def test_nonsense_is_answered_and_the_listener_goes_on(listener_endpoint, request_, said):
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.linger = 0
        socket.connect(listener_endpoint)
        for asked, expected in ((request_, said), (b'{"do": "hello", "session": 1}', None)):
            socket.send(asked)
            assert socket.poll(60_000)
            error = json.loads(socket.recv()).get("error")
            assert error is None if expected is None else expected in error


@pytest.fixture(scope="module")
def listener_endpoint():
    words = ["-m", "oz", "bench", "--listen", "tcp://127.0.0.1:*"]
    process = ForkedProgram(words, stderr=subprocess.PIPE, text=True)
    try:
        yield process.stderr.readline().split()[-1]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "options",
    [
        ("--listen", "tcp://127.0.0.1:*", "--connect", "tcp://127.0.0.1:1"),
        ("--listen", "tcp://127.0.0.1:*", "--size", "10"),
        ("--listen", "nowhere"),
        ("--listen", "tcp://127.0.0.1:99999"),
        ("--connect", "inproc://a"),
        ("--connect", "tcp://nowhere"),
        ("--size", "-1"),
        ("--subjects", "0"),
        ("--match", "0"),
        ("--match", "1.5"),
        ("--match", "0.001", "--subjects", "100"),
        ("--subscribers", "0"),
        ("--seconds", "0"),
        ("--filtering", "nobody"),
        ("surplus",),
    ],
)
def test_what_is_written_wrongly_exits_2_at_once(oz, options):
    result = oz("bench", *options)
    assert result.exit_code == 2
    assert result.stderr


def test_a_fraction_of_less_than_one_subject_says_how_many_it_needs(oz):
    line = oz("bench", "--match", "0.001", "--subjects", "100").stderr.splitlines()[-1]
    least = re.search(r"take at least (\d+) subjects", line).group(1)
    BenchPlan("prefix", match=0.001, subjects=int(least)).check()


def test_an_address_in_use_is_one_line(oz, listener_endpoint):
    result = oz("bench", "--listen", listener_endpoint)
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert listener_endpoint in line


@pytest.mark.parametrize(
    ("subjects", "match", "hits"), [(10, 0.3, 3), (1000, 0.01, 10), (7, 1.0, 7), (1, 0.6, 1)]
)
def test_the_subjects_that_match_are_spread_evenly_and_counted(subjects, match, hits):
    names, before = BenchPlan("prefix", subjects=subjects, match=match).make_subjects()
    assert len(set(names)) == subjects
    assert sum(name.endswith(".hit") for name in names) == before[-1] == hits
    for place in range(subjects + 1):
        assert before[place] == sum(name.endswith(".hit") for name in names[:place])
        assert abs(before[place] - place * hits / subjects) < 1


def test_a_plan_from_elsewhere_is_checked():
    assert BenchPlan.read({"filtering": "prefix", "seconds": 1}) == BenchPlan("prefix", seconds=1)
    for bad in ({}, [], None, {"filtering": []}, {"filtering": "prefix", "size": True}):
        with pytest.raises(BenchFailed):
            BenchPlan.read(bad)


def test_percentiles_are_samples_that_so_many_do_not_exceed():
    latency = Latency.of([1000 * value for value in range(1000, 0, -1)])
    assert latency.figures() == {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000}
    assert set(Latency.of([5000]).figures().values()) == {5.0}
    assert Latency.of([]).as_data() == {"samples": 0}
