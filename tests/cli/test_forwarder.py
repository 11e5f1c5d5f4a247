"""How the sides of a forwarder are given."""

import click
import pytest

from oz.cli.side_options import parse_side, read_sides


def test_a_side_is_keys_and_values():
    text = "bus=wan,nameserver=tcp://a:1,nameserver=tcp://b:2,bind=tcp://*:5,allow=md.>,lost_after=2,name=f"
    assert parse_side(text) == {
        "bus": "wan",
        "nameserver": ["tcp://a:1", "tcp://b:2"],
        "bind": ["tcp://*:5"],
        "allow": ["md.>"],
        "lost_after": 2.0,
        "name": "f",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bus=a,colour=red", "'colour' .* is nothing that a side has; there are bus,"),
        ("bus", "write bus=VALUE"),
        ("bus=", "write bus=VALUE"),
        ("bus=a,bus=b", "'bus' stands twice"),
        ("bus=a,lost_after=soon", "'lost_after' is a number, not 'soon'"),
        ("", "is nothing that a side has"),
    ],
)
def test_a_side_that_means_nothing_is_refused(text, says):
    with pytest.raises(click.BadParameter, match=says):
        parse_side(text)


def test_sides_from_a_file(tmp_path):
    path = tmp_path / "forwarder.toml"
    path.write_text(
        '[[forwarder.side]]\nbus = "lan"\n\n[[forwarder.side]]\nbus = "wan"\nallow = ["a,b", "md.>"]\n'
    )
    assert read_sides(path) == [{"bus": "lan"}, {"bus": "wan", "allow": ["a,b", "md.>"]}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no sides"),
        ("forwarder = 1", "has no sides"),
        ("[forwarder]\nside = [1]", "has no sides"),
        ("[[forwarder.side]]\ncolour = 1", "nothing that a side has"),
        ("[[forwarder", "is no TOML"),
    ],
)
def test_a_file_that_means_nothing_is_refused(tmp_path, text, says):
    path = tmp_path / "forwarder.toml"
    path.write_text(text)
    with pytest.raises(click.BadParameter, match=says):
        read_sides(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(click.BadParameter, match="No such file"):
        read_sides(tmp_path / "nothing.toml")


@pytest.mark.parametrize("arguments", [[], ["--side", "bus=a"]])
def test_too_few_sides_are_refused_with_what_to_give(oz, arguments):
    ended = oz("forwarder", *arguments)
    assert ended.exit_code == 2
    assert "give --side twice or more" in " ".join(ended.output.split())
