"""`oz nameserver`."""

import re
import signal

import pytest
import zmq

from support.announcing import PRICING, Dealer, all_registered

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def registered():
    """Register a node at an endpoint."""
    with zmq.Context() as context:
        made = []

        def register(endpoint):
            made.append(Dealer(context, endpoint, PRICING))
            all_registered(made[-1:])
            return made[-1]

        yield register
        for dealer in made:
            dealer.socket.close()


def endpoints_in(line):
    return re.findall(r"bound to (\S+?)(?:,|$)", line)


def test_a_node_registers_after_the_ready_line_and_sigterm_ends_it_cleanly(oz_start, registered):
    running = oz_start("nameserver", "--bind", ANY, "--name", "ns1")
    line = running.ready_line()
    assert line.startswith("oz nameserver: ready, bound to tcp://127.0.0.1:")
    node = registered(endpoints_in(line)[0])
    assert node.discovery_client.server_name == "ns1"
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert ended.code == 0
    assert ended.stdout == b""
    assert re.fullmatch(
        r"oz nameserver: \d nodes joined, 0 left and \d were lost; \d are there\n", ended.stderr
    )


def test_it_ends_with_ctrl_c_too(oz_start):
    running = oz_start("nameserver", "--bind", ANY)
    running.ready_line()
    running.interrupt()
    assert running.end().code == 0


def test_verbose_says_who_comes_and_goes(oz_start, registered, tmp_path):
    running = oz_start("nameserver", "--bind", ANY, "--bind", f"ipc://{tmp_path}/ns", "--verbose")
    tcp, ipc = endpoints_in(running.ready_line())
    assert ipc == f"ipc://{tmp_path}/ns"
    node = registered(ipc)
    assert tcp.startswith("tcp://")
    said = running.line_with(running.process.stderr, b"joined")
    assert said.startswith(
        "oz nameserver: joined: pricing of bus md (host lab1, pid 4711) at tcp://192.0.2.7:5757"
    )
    node.send(node.discovery_client.goodbye())
    # Lost, if that took more than its expiry.
    assert re.search("left|lost: pricing", running.line_with(running.process.stderr, b"nameserver: l"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--bind", "nowhere"), "no endpoint"),
        (("--bind", "inproc://x"), "inproc"),
        (("--bind", ANY, "--name", "n" * 256), "255 bytes"),
    ],
)
def test_what_makes_no_sense_exits_2(oz, arguments, says):
    result = oz("nameserver", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_an_endpoint_that_is_taken_is_said_in_one_line(oz, oz_start):
    running = oz_start("nameserver", "--bind", ANY)
    (endpoint,) = endpoints_in(running.ready_line())
    result = oz("nameserver", "--bind", endpoint)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "another socket is bound to it" in result.stderr


def test_an_ipc_path_in_use_is_an_error_of_one_line_that_names_it(oz, oz_start, tmp_path):
    endpoint = f"ipc://{tmp_path}/names"
    oz_start("nameserver", "--bind", endpoint).ready_line()
    for command in (("nameserver",), ("sub", "a"), ("pub", "a", "b")):
        result = oz(*command, "--bind", endpoint)
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 1
        assert f"{tmp_path}/names' is in use" in result.stderr
        assert result.stderr.count("bind to another") == 1
