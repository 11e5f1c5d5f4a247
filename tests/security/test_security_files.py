"""`oz.Security` from a file."""

import pytest
import zmq

import oz
from oz.transport.security import credentials_of

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


def test_it_is_read_from_a_file_whose_paths_are_relative(ring, tmp_path):
    (tmp_path / "oz.toml").write_text(
        '[security]\nkey = "keys/feed.key_secret"\ntrusted = "trusted"\npermissions = "permissions.toml"\n'
        '[security.servers]\n"tcp://hub:1" = "desk"\n'
    )
    made = oz.Security.from_file(tmp_path / "oz.toml")
    assert made.public_key == ring.public("feed")
    assert set(made.trusted.values()) == {"feed", "desk", "other"}
    assert credentials_of(made).permissions is not None
    assert ring.pair("feed").secret not in repr(made)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"below a line \[security\]"),
        ("[security]\nkey = 'keys/feed.key_secret'\n", "trusted"),
        ("[security]\nkey = 1\ntrusted = 'trusted'\n", "give a path"),
        ("[security]\nkye = 'x'\n", "there are key, trusted"),
        ("[security]\nkey = 'gone'\ntrusted = 'trusted'\n", "No such file"),
        ("[security]\nkey = 'keys/feed.key_secret'\ntrusted = 'trusted'\nservers = 1\n", "for each endpoint"),
        (
            "[security]\nkey = 'keys/feed.key_secret'\ntrusted = 'trusted'\nservers = {'tcp://a:1' = 'b'}\n",
            "no certificate",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(ring, tmp_path, text, told):
    (tmp_path / "oz.toml").write_text(text)
    with pytest.raises(oz.ConfigurationError, match=told):
        oz.Security.from_file(tmp_path / "oz.toml")
