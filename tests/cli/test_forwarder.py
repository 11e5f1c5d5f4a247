"""How the legs of a forwarder are given."""

import signal

import click
import pytest
import zmq

import oz as library
from oz.cli.forwarder import parse_leg, read_legs
from support.waiting import DEADLINE


def test_leg_is_keys_and_values():
    text = "bus=wan,connect=tcp://a:1,connect=tcp://b:2,bind=tcp://*:5,allow=md.>,lost_after=2,name=f"
    assert parse_leg(text) == {
        "bus": "wan",
        "connect": ["tcp://a:1", "tcp://b:2"],
        "bind": ["tcp://*:5"],
        "allow": ["md.>"],
        "lost_after": 2.0,
        "name": "f",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bus=a,colour=red", "'colour' is no key of a leg; write KEY=VALUE with one of bus,"),
        ("bus", "write bus=VALUE"),
        ("bus=", "write bus=VALUE"),
        ("bus=a,bus=b", "'bus' is given twice"),
        ("bus=a,lost_after=soon", "'lost_after' is a number, not 'soon'"),
        ("", "is no key of a leg"),
    ],
)
def test_invalid_leg_is_refused(text, says):
    with pytest.raises(click.BadParameter, match=says):
        parse_leg(text)


def test_sides_from_a_file(tmp_path):
    path = tmp_path / "forwarder.toml"
    path.write_text(
        '[[forwarder.leg]]\nbus = "lan"\n\n[[forwarder.leg]]\nbus = "wan"\nallow = ["a,b", "md.>"]\n'
    )
    assert read_legs(path) == [{"bus": "lan"}, {"bus": "wan", "allow": ["a,b", "md.>"]}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"has no legs: write a table \[\[forwarder\.leg\]\] for each bus"),
        ("forwarder = 1", "has no legs"),
        ("[forwarder]\nleg = [1]", "has no legs"),
        ("[[forwarder", "is no TOML"),
    ],
)
def test_invalid_file_is_refused(tmp_path, text, says):
    path = tmp_path / "forwarder.toml"
    path.write_text(text)
    with pytest.raises(click.BadParameter, match=says):
        read_legs(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(click.BadParameter, match="No such file"):
        read_legs(tmp_path / "nothing.toml")


def test_port_in_use_is_named(oz, tmp_path):
    place = f"ipc://{tmp_path}/one"
    with zmq.Context() as context, context.socket(zmq.PUB) as taken:
        port = taken.bind_to_random_port("tcp://127.0.0.1")
        ended = oz("forwarder", "--frontend", f"tcp://127.0.0.1:{port}", "--backend", place)
    assert ended.exit_code == 1
    assert "close that socket, or bind to another endpoint" in ended.output
    assert "--bind" not in ended.output


def test_limits_beside_the_legs_of_a_file_hold_for_all_of_them(tmp_path):
    file = tmp_path / "forwarder.toml"
    legs = '[[forwarder.leg]]\nbus = "a"\n[[forwarder.leg]]\nbus = "b"\n'
    file.write_text(f"{legs}[limits]\npatterns = 7\n")
    assert [leg["limits"].patterns for leg in read_legs(file)] == [7, 7]
    file.write_text(f"{legs}[limits]\npaterns = 7\n")
    with pytest.raises(click.BadParameter, match=r"line 6: paterns = 7: no limit has this name"):
        read_legs(file)


def test_it_joins_two_buses(oz, signal_when, directory):
    legs = [f"bus={bus},directory={directory}" for bus in ("lan", "wan")]
    options = library.NodeOptions(directory=directory)

    def has_crossed():
        with (
            library.Node("near", bus="lan", options=options) as near,
            library.Node("far", bus="wan", options=options) as far,
        ):
            got = far.subscribe("md.>")
            near.wait_ready(subscriber="md.a", timeout=DEADLINE)
            near.publish("md.a", "crossed")
            return got.receive(timeout=DEADLINE).payload == "crossed"

    signal_when(has_crossed, signal.SIGTERM)
    ended = oz("forwarder", "--leg", legs[0], "--leg", f"{legs[1]},allow=md.>")
    assert ended.exit_code == 0
    assert "oz forwarder: ready, passing on bus lan, passing on bus wan\n" in ended.stderr
    assert "1 messages of 8 bytes came and 1 were passed on" in ended.stderr
