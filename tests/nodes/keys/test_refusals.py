"""Errors and log lines of nodes of one host with untrusted keys, or with a key at one node only."""

import os
import shlex
import shutil
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

import oz
from oz.cli import main
from oz.errors import PermissionDenied, Timeout
from oz.logs import forget_rates
from support.keyring import Keyring
from support.waiting import DEADLINE, until


@pytest.fixture
def ring(tmp_path):
    forget_rates()
    return Keyring(tmp_path, "alpha", "beta", "gamma")


@pytest.fixture
def keyed(make, ring, tmp_path):
    """Create a node with its key, which trusts all keys but some. Its name is not that of its certificate."""

    def create(key, *, distrusts=(), **options):
        trusted = tmp_path / f"trusted-by-{key}"
        shutil.copytree(ring.trusted, trusted)
        for other in distrusts:
            (trusted / f"{other}.key").unlink()
        return make(f"node-{key}", security=oz.Security(ring.path(key), trusted=trusted), **options)

    return create


def reason(node, name):
    """Return the text of a timeout."""
    with pytest.raises(Timeout) as raised:
        node.wait_ready(name, timeout=0.05)
    return str(raised.value)


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "oz.security"]


def test_a_node_on_the_same_host_is_named_by_its_certificate(keyed, caplog):
    events = []
    keyed("alpha", distrusts=["beta"])
    beta = keyed("beta", on_event=events.append)
    wanted = "the node with the certificate 'alpha' has the key "
    until(lambda: wanted in reason(beta, "node-alpha"))
    text = reason(beta, "node-alpha")
    assert "run oz keys trust beta.key --in DIR" in text
    assert ("ipc://" in text, "Check that" in text) == (False, False)
    until(lambda: [event for event in events if event.kind == "denied"])
    (event,) = [event for event in events if event.kind == "denied"]
    assert wanted in event.text
    assert any(wanted in text for text in warnings(caplog))


def test_a_node_whose_key_is_not_trusted_is_named_by_this_key(keyed, ring, tmp_path):
    events = []
    alpha = keyed("alpha", distrusts=["beta"], on_event=events.append)
    keyed("beta")
    key = ring.public("beta")
    wanted = f"a node of this host has the key {key}, which this side does not trust: run oz keys trust --in "
    until(lambda: wanted in reason(alpha, "node-beta"))
    (event,) = until(lambda: [event for event in events if event.kind == "denied"])
    assert wanted in event.text
    # The command of the text works.
    words = shlex.split(event.text.partition(": run oz ")[2].removesuffix(". The connection is tried again"))
    words[words.index("NAME")] = "beta"
    assert CliRunner().invoke(main, words).exit_code == 0
    alpha.wait_ready("node-beta", timeout=DEADLINE)


def test_a_refusal_of_a_node_with_several_endpoints_is_one_sentence(keyed):
    alpha = keyed("alpha", bind="tcp://127.0.0.1:*", distrusts=["beta"])
    beta = keyed("beta", connect=alpha.endpoint)
    wanted = f"{alpha.endpoint} (also the node with the certificate 'alpha') has the key"
    other = f"the node with the certificate 'alpha' (also {alpha.endpoint}) has the key"
    text = until(lambda: (text := reason(beta, "x")) and (wanted in text or other in text) and text)
    assert text.count("does not trust") == 1
    with pytest.raises(Timeout) as raised:
        beta.subscribe("x").receive(timeout=0.05)
    assert str(raised.value).count("does not trust") == 1
    assert str(raised.value).endswith("; no peer is up")


def test_a_node_that_was_up_is_named_when_its_key_is_revoked(make, ring):
    nodes = [make(f"node-{key}", security=ring.security(key)) for key in ("alpha", "beta")]
    nodes[1].wait_ready("node-alpha", timeout=DEADLINE)
    ring.distrust("beta")
    until(lambda: not nodes[1].peers)
    until(lambda: "peer 'node-alpha' has the key" in reason(nodes[1], "node-alpha"))


def test_a_node_that_refuses_a_subscription_is_named(make, ring):
    ring.permit(alpha="", beta='subscribe = { allow = ["md.>"] }')
    _, beta = (
        make(f"node-{key}", security=ring.security(key, permissions=True)) for key in ("alpha", "beta")
    )
    beta.wait_ready("node-alpha", timeout=DEADLINE)
    found = beta.subscribe("other")
    with pytest.raises(PermissionDenied, match=r"^peer 'node-alpha' refuses 'other': "):
        found.receive(timeout=DEADLINE)
    with pytest.raises(Timeout, match="; peer 'node-alpha' refuses 'other': "):
        found.receive(timeout=0.05)


@pytest.mark.parametrize("trusts", [True, False])
def test_a_listener_logs_one_line_about_one_wrong_key(keyed, ring, directory, caplog, trusts):
    """The caller searches for the key of the listener, and may find it."""
    alpha = keyed("alpha", bind="tcp://127.0.0.1:*", distrusts=["beta"])
    caplog.clear()
    beta = keyed(
        "beta",
        connect=alpha.endpoint,
        distrusts=[] if trusts else ["alpha"],
        directory=f"{directory}/other",
    )
    text = f"its key {ring.public('beta')} is not in" if trusts else "the caller does not trust the key"

    def lines():
        return [line for line in warnings(caplog) if " is refused: " in line]

    until(lambda: "oz keys trust" in reason(beta, "node-alpha"))
    # `tests/transport/test_arrivals.py` shows that later failures of the search cause no second line.
    (line,) = until(lines)
    assert text in line


@pytest.mark.parametrize("has_keys", [True, False])
def test_nodes_with_and_without_keys_name_each_other_as_the_cause(make, keyed, has_keys):
    alpha, plain = keyed("alpha"), make("plain")
    asking, name = (alpha, "plain") if has_keys else (plain, "node-alpha")
    theirs = (
        "without keys on this bus, and this node has keys"
        if has_keys
        else "with keys on this bus, and this node has no keys"
    )
    assert f"the directory has a socket of a node {theirs}" in reason(asking, name)
    with pytest.raises(Timeout, match=rf"no peer is up.*; the directory has a socket of a node {theirs}"):
        asking.subscribe("x").receive(timeout=0.05)
    another = keyed("beta") if has_keys else make("other")
    assert theirs in reason(another, name)


def test_nodes_of_one_kind_are_no_cause(make, keyed):
    plain, alpha = make("plain", bus="one"), keyed("alpha", bus="two")
    assert "do not find each other" not in reason(plain, "other")
    assert "do not find each other" not in reason(alpha, "other")


def test_a_socket_of_a_killed_process_is_no_cause(make, keyed, directory):
    plain = make("plain")
    [path] = Path(directory).glob("*.sock")
    begin, _, node = path.name.partition("-")
    dead = path.with_name(f"{begin}-{node.removesuffix('.sock').swapcase()}.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))
    # A young socket may belong to a process that does not listen yet.
    os.utime(dead, (0, 0))
    plain.close()
    assert "do not find each other" not in reason(keyed("alpha"), "other")
