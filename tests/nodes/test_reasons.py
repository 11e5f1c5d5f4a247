"""Reasons in the text of `Timeout`, and warnings about deleted sockets."""

import os
import shutil

import pytest

import oz
from oz.errors import NoResponders, Timeout
from support.ports import lasting_port
from support.waiting import DEADLINE, until


def reason_of(call, **options):
    """Return the text of the timeout of a call."""
    with pytest.raises(Timeout) as raised:
        call(timeout=0.05, **options)
    return str(raised.value)


def test_receive_without_peers_names_the_directory_and_the_remedy(make, directory):
    got = make("alone").subscribe("x")
    text = reason_of(got.receive)
    assert "no peer is up. Check that the missing peer runs" in text
    assert directory in text


def test_receive_names_an_endpoint_where_nothing_answers(make):
    endpoint = f"tcp://127.0.0.1:{lasting_port()}"
    got = make("alone", connect=endpoint).subscribe("x")
    assert f"nothing answers at {endpoint}: start a node or a name server" in reason_of(got.receive)


def test_receive_names_peers_that_publish_nothing_that_matches(make):
    got, other = make("first").subscribe("x"), make("second")
    other.wait_ready("first", timeout=DEADLINE)
    until(
        lambda: "the peers that are up have published nothing that matches: second" in reason_of(got.receive)
    )


def test_a_check_without_a_wait_has_no_reason(make):
    got = make("alone").subscribe("x")
    with pytest.raises(Timeout, match=r"^no message in 0 s$"):
        got.receive(timeout=0)


def test_nodes_that_connect_in_one_direction_only_name_the_endpoint_and_the_remedy(make, directory):
    """Behind a router that translates addresses, peers cannot dial the address that the node announces."""
    hub = make("hub", bind="tcp://127.0.0.1:*", directory=f"{directory}/hub")
    behind = make("behind", connect=hub.endpoint, directory=f"{directory}/behind", advertise="127.0.0.2")
    behind.subscribe("svc", lambda message: message.payload)
    announced = behind.endpoint
    assert announced.startswith("tcp://127.0.0.2:")
    remedy = "give the node that cannot be reached bind= with a port, and NodeOptions(advertise=)"

    def texts():
        # Without a name too: the node has no peer that is up.
        return reason_of(lambda timeout: hub.wait_ready("behind", timeout=timeout)), reason_of(
            behind.wait_ready
        )

    until(lambda: all(remedy in text for text in texts()))
    at_hub, at_behind = texts()
    assert f"peer 'behind' has connected to this node, which cannot connect to it at {announced}" in at_hub
    assert "this node has connected to peer 'hub', which cannot connect to it at" in at_behind
    assert announced in at_behind
    with pytest.raises((NoResponders, Timeout)):
        hub.request("svc", timeout=0.3)
    hub.wait_ready(timeout=DEADLINE)


def test_a_node_whose_socket_was_deleted_is_found_by_later_nodes(make, directory, tmp_path):
    first = make("first")
    (socket,) = [
        endpoint.removeprefix("ipc://") for endpoint in first.endpoints if endpoint.startswith("ipc://")
    ]
    path = tmp_path.__class__(socket)
    for name in ("second", "third"):
        path.unlink()
        later = make(name)
        later.wait_ready("first", timeout=DEADLINE)
        later.close()
        until(lambda: not first.peers)
    assert path.exists()


def test_a_node_whose_directory_was_deleted_makes_it_again(make, directory):
    first = make("first")
    shutil.rmtree(directory)
    until(lambda: any(map(os.path.exists, (one.removeprefix("ipc://") for one in first.endpoints))))
    make("second").wait_ready("first", timeout=DEADLINE)


def test_a_wrong_directory_names_the_variable_that_it_came_from(monkeypatch):
    monkeypatch.setenv("OZ_DIRECTORY", "/tmp")
    with pytest.raises(
        oz.ConfigurationError, match=r"^environment variable OZ_DIRECTORY: directory = '/tmp': "
    ):
        oz.Node("lost")
