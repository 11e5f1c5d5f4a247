"""Presence: which nodes are on the bus."""

import pytest

from contract.adapter import errors
from contract.promises import promise
from support.ports import lasting_port
from support.waiting import until


@promise("wait_ready returns when the named peers are up, and peers lists them.")
def test_peers_are_known_by_name(nodes):
    first, *_ = nodes.join("first", "second", "third")
    first.wait_ready("second", "third")
    assert {peer.name for peer in first.peers} == {"second", "third"}


@promise("wait_ready raises Timeout and names the peer that is missing.")
def test_timeout_names_the_missing_peer(nodes):
    (node,) = [nodes.node("alone")]
    with pytest.raises(errors.Timeout, match="absentee"):
        node.wait_ready("absentee", timeout=0.2)


@promise("Nodes report the name of each peer that joins or leaves.")
def test_join_and_leave_are_reported(nodes):
    events = []
    first = nodes.node("first", on_event=events.append)
    second = nodes.node("second")
    first.wait_ready("second")
    second.close()
    until(lambda: not first.peers)
    until(lambda: len(events) == 2)
    assert [(event.kind, event.about) for event in events] == [("peer_up", "second"), ("peer_left", "second")]


@promise("Nodes report a killed peer as lost.", small=2)
def test_killed_node_is_reported_lost(nodes, program, directory):
    events = []
    # `lost_after` is longer than the test may take.
    options = {"lost_after": 600.0, "directory": directory}
    node = nodes.node("survivor", on_event=events.append, options=options)
    code = (
        "import sys, time\n"
        "node = api.node('victim', bus='contract', connect=sys.argv[2:],\n"
        "                options=NodeOptions(directory=sys.argv[1]))\n"
        "say('up')\n"
        "sys.stdin.read()\n"
    )
    peers = [] if nodes.transport == "ipc" else [node.endpoint]
    with program(code, directory, *peers) as process:
        assert process.stdout.readline() == "up\n"
        node.wait_ready("victim")
        process.kill()
        until(lambda: any(event.kind == "peer_lost" for event in events))
    assert not node.peers


@promise("Two nodes may have one name: both are peers.")
def test_two_nodes_may_have_one_name(nodes):
    events = []
    observer = nodes.node("observer", on_event=events.append)
    twins = [nodes.node("twin"), nodes.node("twin")]
    observer.wait_ready(count=2)
    assert [peer.name for peer in observer.peers] == ["twin", "twin"]
    assert len({peer.id for peer in observer.peers}) == len(twins)
    until(lambda: "name_conflict" in [event.kind for event in events])


@promise("Nodes find each other through a name server, and stay connected when the name server ends.")
def test_nodes_outlive_their_name_server(api, directory):
    server = api.name_server()
    names = ("first", "second")
    made = [
        api.node(
            name,
            bus="contract",
            connect=server.endpoint,
            bind="tcp://127.0.0.1:*",
            options={"directory": f"{directory}/{name}"},
        )
        for name in names
    ]
    first, second = made
    first.wait_ready("second")
    second.subscribe("svc", lambda message: message.reply(message.payload))
    first.wait_ready(subscriber="svc")
    server.close()
    assert [first.request("svc", number).payload for number in range(50)] == list(range(50))


@promise("A node dials an endpoint of another bus in connect= again after 100 × lost_after.")
def test_endpoint_of_another_bus_is_dialled_again(api, directory):
    def node(name, bus, **options):
        options = {"options": {"directory": f"{directory}/{name}", "lost_after": 0.02}, **options}
        return api.node(name, bus=bus, **options)

    denied = []
    endpoint = f"tcp://127.0.0.1:{lasting_port()}"
    stranger = node("stranger", "other", bind=endpoint)
    client = node("client", "contract", connect=endpoint, on_event=denied.append)
    until(lambda: denied)
    assert {(event.kind, event.about) for event in denied} == {("denied", endpoint)}
    stranger.close()
    node("server", "contract", bind=endpoint)
    client.wait_ready("server")


@promise("Nodes of different buses do not see each other.")
def test_buses_are_separate(nodes, api, directory):
    stranger = api.node("stranger", bus="other", options={"directory": directory})
    first, _ = nodes.join("first", "second")
    assert {peer.name for peer in first.peers} == {"second"}
    assert stranger.peers == []
