"""All services behave alike: one ready line, and a summary and exit code 0 after SIGINT and SIGTERM."""

import os
import signal

import pytest

import oz
from oz.cli.serving import serve
from oz.journal import Writer

SECOND = 10**9


@pytest.fixture
def command(directory, tmp_path):
    """Return the arguments of a service."""
    endpoint = f"ipc://{directory}/feed"
    commands = {
        "nameserver": ["nameserver", "--bind", f"ipc://{directory}/ns"],
        "forwarder": ["forwarder", "--leg", "bus=lan", "--leg", "bus=wan"],
        "proxy": ["forwarder", "--frontend", f"ipc://{directory}/in", "--backend", f"ipc://{directory}/out"],
        "record": ["record", "a.>", "--journal", str(tmp_path / "made"), "--bind", endpoint],
        "record on a bus": ["record", "a.>", "--journal", str(tmp_path / "made"), "--bus", "lan"],
        "replay": ["replay", str(tmp_path / "recorded"), "--bind", endpoint],
    }
    return commands.__getitem__


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("service", ["nameserver", "forwarder", "proxy", "record", "record on a bus"])
def test_a_signal_ends_a_service_with_a_summary_and_0(oz_start, command, service, ending):
    running = oz_start(*command(service))
    assert running.ready_line().startswith(f"oz {command(service)[0]}: ready, ")
    running.process.send_signal(ending)
    ended = running.end()
    assert (ended.code, ended.stdout, len(ended.stderr.splitlines())) == (0, b"", 1)


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_replay_that_a_signal_ends_too_early_has_the_exit_code_of_the_signal(
    oz_start, command, tmp_path, ending, code
):
    with Writer(tmp_path / "recorded") as writer:
        writer.append([{"subject": "a", "payload": b"", "time_ns": at * 1000 * SECOND} for at in (1, 2)])
    running = oz_start(*command("replay"))
    assert running.ready_line().startswith("oz replay: ready, ")
    with oz.Subscriber(command("replay")[-1]) as subscriber:
        subscriber.subscribe("a")
        subscriber.receive(timeout=40)
        running.process.send_signal(ending)
        ended = running.end()
    assert (ended.code, ended.stderr) == (code, "oz replay: published 1 messages\n")


@pytest.mark.parametrize("service", ["nameserver", "forwarder", "proxy"])
def test_an_early_signal_ends_a_service_that_is_quiet(oz_start, command, service):
    running = oz_start(*command(service), "--quiet")
    # With its second thread the service is in its constructor.
    while not os.listdir(f"/proc/{running.process.pid}/task")[1:]:
        assert running.process.poll() is None
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.stderr) == (0, "")


class Service:
    """Service whose `run` calls `look` a number of times, as time passes."""

    def __init__(self, rounds):
        self.rounds, self.wanted = rounds, []

    def run(self, look):
        for _ in range(self.rounds):
            self.wanted.append(look())

    def stop(self):
        raise AssertionError("no signal came")


@pytest.mark.parametrize(
    ("states", "lines"),
    [
        ([None, None, "a"], ["ready, a"]),
        (["a", "a", "b", "b", "a"], ["ready, a", "now b", "now a"]),
        (["a", None, "a"], ["ready, a"]),
    ],
)
def test_each_state_is_reported_once(monkeypatch, states, lines):
    printed, left = [], iter(states)
    monkeypatch.setattr("oz.cli.serving.print_status", lambda ctx, line: printed.append(line))
    service = Service(len(states))
    serve(None, service, lambda: next(left), str)
    assert printed == lines
    # Until it is ready it is asked ten times a second, and then when it has news.
    first = next(at for at, state in enumerate(states) if state)
    assert service.wanted == [None] * first + [float("inf")] * (len(states) - first)


def test_progress_is_reported_when_it_has_changed(monkeypatch):
    printed, now = [], iter(range(100))
    counts = iter(["1", "1", "2", "2"])
    monkeypatch.setattr("oz.cli.serving.print_status", lambda ctx, line: printed.append(line))
    monkeypatch.setattr("oz.cli.serving.time.monotonic", lambda: float(next(now)))
    serve(None, Service(4), lambda: None, lambda: next(counts), progress=0.5)
    assert printed == ["1", "2"]
