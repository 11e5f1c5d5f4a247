"""All services behave alike: one ready line, and a summary and exit code 0 after SIGINT and SIGTERM."""

import os
import signal
import socket
import urllib.error
import urllib.request

import click
import pytest

import oz
from oz.cli.serving import serve, service_options
from oz.journal import Writer
from support.waiting import DEADLINE

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


@pytest.mark.parametrize("service", ["nameserver", "forwarder", "proxy", "record", "replay"])
def test_a_service_reports_that_it_is_ready_and_that_it_stops(
    oz_start, command, tmp_path, directory, monkeypatch, service
):
    with Writer(tmp_path / "recorded") as writer:
        writer.append([{"subject": "a", "payload": b"", "time_ns": SECOND}])
    options = ("--wait", "40") if service == "replay" else ()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"{directory}/notify")
        systemd.settimeout(DEADLINE)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{directory}/notify")
        running = oz_start(*command(service), *options)
        assert systemd.recv(100) == b"READY=1"
        running.terminate()
        assert systemd.recv(100) == b"STOPPING=1"
        running.end()
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


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
        subscriber.receive(timeout=DEADLINE)
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
    """Service whose `run` calls `on_poll` a number of times."""

    def __init__(self, rounds):
        self.rounds, self.wanted = rounds, []

    def run(self, on_poll):
        for _ in range(self.rounds):
            self.wanted.append(on_poll())

    def stop(self):
        raise AssertionError("no signal came")


@pytest.fixture
def served():
    """Return a function that runs a service as a command with options does."""

    def run(service, state, *options):
        @click.command()
        @service_options
        @click.pass_context
        def command(ctx):
            serve(ctx, service, state)

        command.main(options, standalone_mode=False)

    return run


@pytest.mark.parametrize(
    ("states", "lines"),
    [
        ([None, None, "a"], ["ready, a"]),
        (["a", "a", "b", "b", "a"], ["ready, a", "now b", "now a"]),
        (["a", None, "a"], ["ready, a"]),
    ],
)
def test_each_state_is_reported_once(served, monkeypatch, states, lines):
    printed, left = [], iter(states)
    monkeypatch.setattr("oz.cli.serving.print_status", lambda ctx, line: printed.append(line))
    service = Service(len(states))
    served(service, lambda: next(left))
    assert printed == lines
    # While it is not ready it is polled ten times a second, and then when it has news.
    assert service.wanted == [float("inf") if state else None for state in states]


def test_healthz_shows_whether_a_service_is_ready_at_present(served, monkeypatch):
    printed, found = [], []
    monkeypatch.setattr("oz.cli.serving.print_status", lambda ctx, line: printed.append(line))

    class Probed(Service):
        def run(self, on_poll):
            url = printed[0].removeprefix("metrics at ").replace("/metrics", "/healthz")
            for _ in range(self.rounds):
                on_poll()
                found.append(status_of(url))

    states = iter([None, "a", None, "b"])
    served(Probed(4), lambda: next(states), "--metrics", "127.0.0.1:0")
    assert found == [503, 200, 503, 200]


def status_of(url):
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
