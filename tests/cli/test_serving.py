"""All services behave alike: one ready line, and a summary and exit code 0 after SIGINT and SIGTERM."""

import os
import re
import signal
import socket

import click
import pytest

import oz as library
from oz.cli.serving import serve, service_options
from oz.journal import Writer
from oz.services.name_server import NameServer
from support.ports import lasting_endpoint, lasting_port
from support.sizes import one_of_each
from support.urls import fetch
from support.waiting import DEADLINE, until

SECOND = 10**9
SERVICES = ["nameserver", "forwarder", "proxy", "record", "record on a bus"]


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


@pytest.fixture
def systemd(directory, monkeypatch):
    """Socket that receives the reports to systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(f"{directory}/notify")
        made.settimeout(DEADLINE)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{directory}/notify")
        yield made


def has_stopped(systemd):
    """Return whether the next report is STOPPING=1, and the last one."""
    reports = [systemd.recv(100)]
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        reports.append(systemd.recv(100))
    return reports == [b"STOPPING=1"]


@pytest.mark.parametrize(("service", "ending"), one_of_each(SERVICES, [signal.SIGINT, signal.SIGTERM]))
def test_a_service_reports_readiness_and_a_signal_ends_it_with_a_summary_and_0(
    oz, signal_when, systemd, command, service, ending
):
    signal_when(lambda: systemd.recv(100) == b"READY=1", ending)
    ended = oz(*command(service))
    assert (ended.exit_code, ended.stdout) == (0, "")
    ready, _summary = ended.stderr.splitlines()
    assert ready.startswith(f"oz {command(service)[0]}: ready, ")
    assert has_stopped(systemd)


def test_two_signals_at_once_are_one(oz, signal_when, systemd, command):
    """`timeout -s INT` signals its child, and then its process group."""
    signal_when(lambda: systemd.recv(100) == b"READY=1" and not os.kill(os.getpid(), signal.SIGINT))
    assert oz(*command("nameserver")).exit_code == 0


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_replay_that_a_signal_ends_too_early_has_the_exit_code_of_the_signal(
    oz, signal_when, systemd, command, tmp_path, ending, code
):
    with Writer(tmp_path / "recorded") as writer:
        writer.append([{"subject": "a", "payload": b"", "time_ns": at * 1000 * SECOND} for at in (1, 2)])

    def has_begun():
        with library.Subscriber(command("replay")[-1]) as subscriber:
            subscriber.subscribe("a")
            return subscriber.receive(timeout=DEADLINE)

    signal_when(has_begun, ending)
    ended = oz(*command("replay"), "--wait", "40")
    assert systemd.recv(100) == b"READY=1"
    assert has_stopped(systemd)
    assert (ended.exit_code, ended.stderr.splitlines()[1:]) == (code, ["oz replay: published 1 messages"])


def test_a_signal_while_a_service_is_created_ends_it_quietly(oz, monkeypatch, command):
    class Signalled(NameServer):
        def __init__(self, *arguments, **options):
            os.kill(os.getpid(), signal.SIGTERM)
            super().__init__(*arguments, **options)

    monkeypatch.setattr("oz.services.name_server.NameServer", Signalled)
    ended = oz(*command("nameserver"), "--quiet")
    assert (ended.exit_code, ended.stderr) == (0, "")


@pytest.fixture
def join(directory):
    """Join a bus through a name server only: each node has a directory of its own."""
    nodes = []

    def joined(name, endpoint):
        options = library.NodeOptions(directory=f"{directory}/{name}")
        nodes.append(library.Node(name, bus="test", connect=endpoint, options=options))
        return nodes[-1]

    yield joined
    for node in nodes:
        node.close(timeout=0)


def test_name_server_joins_nodes_and_serves_metrics(oz, signal_when, join):
    endpoint, address = lasting_endpoint(), f"127.0.0.1:{lasting_port()}"

    def has_seen_nodes():
        pricing, desk = join("pricing", endpoint), join("desk", endpoint)
        desk.wait_ready("pricing", timeout=DEADLINE)
        pricing.close()
        until(lambda: "oz_nameserver_left_total 1\n" in fetch(f"http://{address}/metrics")[1])
        assert "\noz_peers{" in fetch(f"http://{address}/metrics")[1]
        return fetch(f"http://{address}/healthz")[0] == 200

    signal_when(has_seen_nodes, signal.SIGTERM)
    options = ("--name", "ns1", "--verbose", "--metrics", address)
    ended = oz("nameserver", "--bind", endpoint, *options)
    assert (ended.exit_code, ended.stdout) == (0, "")
    for text in (f"metrics at http://{address}/metrics", f"ready, bound to {endpoint}", "is up", "has left"):
        assert f"{text}\n" in ended.stderr
    # The node `desk` of this process may log a line after the summary.
    assert re.search(r"oz nameserver: \d nodes joined, 1 left and \d were lost; \d are up\n", ended.stderr)


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
                found.append(fetch(url)[0])

    states = iter([None, "a", None, "b"])
    served(Probed(4), lambda: next(states), "--metrics", "127.0.0.1:0")
    assert found == [503, 200, 503, 200]
