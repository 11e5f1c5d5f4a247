"""Certificates: only the owner can read a secret certificate, and unsafe files are refused."""

import os

import pytest
import zmq
from zmq.auth import load_certificate, load_certificates

import oz
from oz.security.identity import is_key
from oz.transport.certificates import (
    KeyPair,
    new_key_pair,
    read_public,
    read_secret,
    read_trusted,
    write_certificates,
    write_public,
)

PAIR = KeyPair("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6")


@pytest.fixture
def keys(tmp_path):
    return tmp_path / "keys"


def mode(path):
    return path.stat().st_mode & 0o777


def test_a_new_pair_is_one_that_zeromq_takes():
    pair = new_key_pair()
    assert is_key(pair.public)
    assert zmq.curve_public(pair.secret.encode()).decode() == pair.public


def test_a_pair_shows_no_secret():
    assert PAIR.secret not in repr(PAIR)


def test_only_its_owner_can_read_a_secret_certificate(keys):
    before = os.umask(0)
    try:
        public, secret = write_certificates(keys, "desk", PAIR)
    finally:
        os.umask(before)
    assert (mode(keys), mode(secret), mode(public)) == (0o700, 0o600, 0o644)
    assert read_secret(secret) == PAIR
    assert read_public(public) == read_public(secret) == PAIR.public
    assert PAIR.secret not in public.read_text()


def test_pyzmq_reads_both_files(keys):
    public, secret = write_certificates(keys, "desk", PAIR)
    assert load_certificate(secret) == (PAIR.public.encode(), PAIR.secret.encode())
    assert load_certificate(public) == (PAIR.public.encode(), None)
    assert load_certificates(keys) == {PAIR.public.encode(): True}


def test_what_pyzmq_writes_is_read(tmp_path):
    public, secret = zmq.auth.create_certificates(tmp_path, "desk")
    os.chmod(secret, 0o600)
    assert read_secret(tmp_path / "desk.key_secret").public == read_public(tmp_path / "desk.key")
    assert is_key(read_public(tmp_path / "desk.key"))
    assert public.endswith("desk.key")


def test_no_file_is_replaced(keys):
    write_certificates(keys, "desk", PAIR)
    with pytest.raises(oz.ConfigurationError, match="choose another name"):
        write_certificates(keys, "desk", new_key_pair())
    assert read_secret(keys / "desk.key_secret") == PAIR


@pytest.mark.parametrize("name", ["../desk", "a/b", ".hidden", "", "a b", "x" * 101, "a\n", "\u202ex"])
def test_a_name_is_no_path(keys, name):
    with pytest.raises(oz.ConfigurationError, match="name"):
        write_certificates(keys, name, PAIR)
    assert not keys.exists()


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o666])
def test_a_secret_that_others_may_read_or_write_is_refused(keys, bits):
    _, secret = write_certificates(keys, "desk", PAIR)
    secret.chmod(bits)
    with pytest.raises(oz.ConfigurationError, match="chmod 600"):
        read_secret(secret)


def test_keys_go_into_no_directory_that_lets_others_in(keys):
    keys.mkdir()
    keys.chmod(0o755)
    with pytest.raises(oz.ConfigurationError, match="chmod 700"):
        write_certificates(keys, "desk", PAIR)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.key_secret", 0o600)
    with pytest.raises(oz.ConfigurationError, match="certificate"):
        read_secret(tmp_path / "pipe.key_secret")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no public key"),
        ("public-key = short", "no key of 40 characters"),
        ('public-key = "' + "\\" * 40 + '"', "no key of 40 characters"),
        (f'curve\n    public-key = "{PAIR.public}"\n', "has no secret key"),
    ],
)
def test_what_holds_no_key_is_named(tmp_path, text, said):
    path = tmp_path / "x.key_secret"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(oz.ConfigurationError, match=said) as raised:
        read_secret(path)
    assert str(path) in str(raised.value)


def test_the_trusted_keys_of_a_directory_have_the_names_of_their_files(tmp_path):
    other = new_key_pair().public
    write_public(tmp_path, "desk", PAIR.public)
    write_public(tmp_path, "engine", other)
    (tmp_path / "notes.txt").write_text("no certificate")
    assert read_trusted(tmp_path) == {PAIR.public: "desk", other: "engine"}


def test_a_key_that_is_there_twice_or_a_directory_open_to_all_is_refused(tmp_path):
    write_public(tmp_path, "desk", PAIR.public)
    write_public(tmp_path, "desk2", PAIR.public)
    with pytest.raises(oz.ConfigurationError, match="the same key"):
        read_trusted(tmp_path)
    (tmp_path / "desk2.key").unlink()
    tmp_path.chmod(0o777)
    with pytest.raises(oz.ConfigurationError, match="chmod o-w"):
        read_trusted(tmp_path)


@pytest.mark.parametrize("kind", ["public", "secret"])
def test_40_characters_that_z85_cannot_decode_are_no_key_and_their_line_is_told(keys, kind):
    assert not is_key("#" * 40)
    assert is_key("%nSc0" * 8)
    assert not is_key("%nSc1" * 8)
    _, secret = write_certificates(keys, "desk", PAIR)
    lines = secret.read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if f"{kind}-key" in line)
    lines[at] = f'{kind}-key = "{"#" * 40}"'
    secret.write_text("\n".join(lines))
    with pytest.raises(oz.ConfigurationError, match=f"line {at + 1}: its {kind}-key is no key"):
        read_secret(secret)


@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")
def test_a_secret_key_of_another_pair_is_refused_with_its_line(keys):
    _, secret = write_certificates(keys, "desk", KeyPair(PAIR.public, new_key_pair().secret))
    with pytest.raises(
        oz.ConfigurationError, match=r"line \d+: its secret key does not belong to its public key"
    ):
        read_secret(secret)


@pytest.mark.skipif(os.name != "posix", reason="links need no rights on POSIX only")
def test_a_symbolic_link_to_a_secret_key_is_refused_as_what_it_is(keys, tmp_path):
    _, secret = write_certificates(keys, "desk", PAIR)
    (tmp_path / "link.key_secret").symlink_to(secret)
    with pytest.raises(oz.ConfigurationError, match="it is a symbolic link") as refused:
        read_secret(tmp_path / "link.key_secret")
    assert str(secret.resolve()) in str(refused.value)
    assert "levels" not in str(refused.value)
