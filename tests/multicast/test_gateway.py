"""The gateway. Its multicast processes may end at any time. Programs continue, and each loss is reported."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
import zmq

from multicast.bridging import Bridge, free_endpoint
from multicast.malformed import malformed_packet
from oz.services import worker
from oz.services.gateway import Gateway
from oz.services.worker import WorkerError
from oz.subscriber.sync import Subscriber
from oz.transport.backoff import Backoff
from oz.transport.capabilities import pgm_line
from support.scripts import ENVIRONMENT
from support.waiting import DEADLINE, Thread, until

pytestmark = [
    pytest.mark.skipif(not zmq.has("pgm"), reason=f"this libzmq has no PGM: {pgm_line()}"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def bridge(tmp_path):
    with Bridge(tmp_path) as made:
        yield made.start()


def numbers(count, start=0):
    return [b"%d" % number for number in range(start, start + count)]


def publish(publisher, payloads, subject="a.x"):
    for payload in payloads:
        publisher.publish(subject, payload)


def kill(bridge, role, number=signal.SIGKILL):
    """Send a signal to a process of the gateway, and wait until another one works."""
    worker = bridge.worker(role)
    starts = worker.backoff.starts
    os.kill(worker.pid, number)
    return lambda: worker.is_ready and worker.backoff.starts > starts


@contextmanager
def without(bridge, role, monkeypatch):
    """Kill a process of the gateway; the next one is started when the block is left, and waited for."""

    def never(backoff, _now):
        backoff.next_start = math.inf
        return math.inf

    with monkeypatch.context() as held:
        held.setattr(Backoff, "ended", never)
        is_back = kill(bridge, role)
        bridge.until(lambda: not bridge.worker(role).is_ready)
    yield
    bridge.worker(role).backoff.next_start = 0.0
    bridge.gateway._bell.ring()
    bridge.until(is_back)


# both directions -------------------------------------------------------------------------------------------


def test_multicast_messages_reach_local_applications_unchanged(bridge):
    near, far = bridge.local_subscriber(), bridge.far_publisher()
    hello = bridge.connect_far(far, near)
    far.publish("a.b.c", b"payload", headers={"trace": "7f"}, id=b"id")
    far.publish("a.b.d")
    far.publish("b.x", b"not asked for")
    assert near.settle(hello + 2) <= hello
    worker, two = near.messages[-2:]
    assert (worker.subject, worker.payload, worker.headers["trace"]) == ("a.b.c", b"payload", "7f")
    assert worker.id == b"id"
    assert (two.subject, two.payload) == ("a.b.d", b"")
    assert [worker.headers["oz-sequence"], two.headers["oz-sequence"]] == [hello, hello + 1]
    assert worker.headers["oz-origin"] == two.headers["oz-origin"]


def test_messages_of_local_applications_are_multicast_unchanged(bridge):
    near, far = bridge.local_publisher(), bridge.far_subscriber()
    hello = bridge.connect_far(near, far)
    near.publish("a.b.c", b"payload", headers={"trace": "7f"}, id=(b"series", 4))
    near.publish("a.b.d")
    assert far.settle(hello + 2) <= hello
    worker, two = far.messages[-2:]
    assert (worker.subject, worker.payload, worker.headers["trace"]) == ("a.b.c", b"payload", "7f")
    assert (two.subject, two.payload) == ("a.b.d", b"")
    assert (worker.sequence, two.sequence) == (hello, hello + 1)
    assert worker.headers["oz-sequence"] == hello
    assert (worker.id, two.id) == ((b"series", 4), None)


def test_echo_delivers_local_messages_to_local_applications(tmp_path):
    for echo, heard in ((True, numbers(3)), (False, [])):
        with Bridge(tmp_path, echo=echo) as bridge:
            bridge.start()
            near, publisher = bridge.local_subscriber(), bridge.local_publisher()
            publish(publisher, numbers(3))
            bridge.until(lambda bridge=bridge: bridge.gateway.stats.sent == 3)
            until(lambda near=near, heard=heard: near.take() or len(near.payloads) >= len(heard))
            near.take(timeout=0.5)
            assert near.payloads == heard


def test_plain_local_publishers_connect_to_the_gateway(bridge):
    near, far, publisher = bridge.local_subscriber(), bridge.far_subscriber(), bridge.plain_publisher()
    hello = bridge.connect_far(publisher, far)
    publish(publisher, numbers(20))
    assert far.settle(hello + 20) <= hello
    near.take()
    for listener in (near, far):
        assert listener.payloads[-20:] == numbers(20)
        assert listener.messages[-1].headers == {}


def test_local_subjects_stay_on_this_host(bridge):
    near, far = bridge.local_subscriber("_LOCAL.>"), bridge.far_subscriber()
    publisher = bridge.local_publisher()
    hello = bridge.connect_far(publisher, far)
    publisher.publish("_LOCAL.x", b"here")
    publisher.publish("a.x", b"everywhere")
    assert far.settle(hello + 1) <= hello
    assert "_LOCAL.x" not in [message.subject for message in far.messages]
    assert near.settle(1) == 0


# what is lost ----------------------------------------------------------------------------------------------


def test_killed_receiver_loses_only_messages_until_its_restart(bridge, monkeypatch):
    near, far = bridge.local_subscriber(), bridge.far_publisher()
    hello = bridge.connect_far(far, near)
    publish(far, numbers(50))
    near.settle(hello + 50)
    before = near.socket.stats.lost
    with without(bridge, "receiver", monkeypatch):
        publish(far, numbers(50))
    # Nothing more is published: the records of the publisher alone show the loss.
    lost = near.settle(hello + 100) - before
    assert lost > 0
    publish(far, numbers(50))
    assert near.settle(hello + 150) - before == lost
    assert near.payloads[-50:] == numbers(50)
    # On a busy machine a process may look stuck.
    assert bridge.gateway.stats.restarts >= 1
    assert bridge.gateway.stats.lost >= lost


def test_killed_sender_loses_only_its_own_messages(bridge):
    near, far = bridge.local_publisher(), bridge.far_subscriber()
    hello = bridge.connect_far(near, far)
    publish(near, numbers(50))
    far.settle(hello + 50)
    before = far.socket.stats.lost
    is_back = kill(bridge, "sender")
    publish(near, numbers(50))
    bridge.until(is_back)
    lost = far.settle(hello + 100) - before
    publish(near, numbers(50))
    assert far.settle(hello + 150) - before == lost
    assert far.payloads[-50:] == numbers(50)
    # It goes on as the same publisher.
    assert len({message.origin for message in far.messages}) == 1


@pytest.mark.parametrize(
    ("role", "junk"),
    # Other packets do not end a publisher.
    [("receiver", "empty"), ("receiver", "short"), ("receiver", "beyond its end"), ("sender", "empty")],
)
def test_malformed_packets_end_no_application(bridge, role, junk):
    near, publisher = bridge.local_subscriber(), bridge.local_publisher()
    worker, starts = bridge.worker(role), bridge.worker(role).backoff.starts
    port = int((bridge.inward if role == "receiver" else bridge.outward).rpartition(":")[2])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:

        def has_ended():
            # Again and again: a process is ready before the kernel hands it packets.
            if worker.backoff.starts == starts:
                attacker.sendto(malformed_packet(junk, port), ("127.0.0.1", port))
            return worker.backoff.starts > starts

        bridge.until(has_ended)
        bridge.until(lambda: worker.is_ready)
    # The applications have noticed nothing.
    publisher.publish("a.x", b"still there")
    assert near.settle(1) == 0
    if role == "receiver":
        bridge.connect_far(bridge.far_publisher(), near)
    else:
        bridge.connect_far(publisher, bridge.far_subscriber())


def test_a_process_that_is_stuck_is_replaced(bridge, monkeypatch):
    monkeypatch.setattr(worker, "HANGS_AFTER", 3.0)
    near, far = bridge.local_subscriber(), bridge.far_publisher()
    hello = bridge.connect_far(far, near)
    is_back = kill(bridge, "receiver", signal.SIGSTOP)
    publish(far, numbers(20))
    bridge.until(is_back)
    monkeypatch.undo()
    hello += bridge.until_heard(far, near)
    publish(far, numbers(20))
    near.settle(hello + 40)
    assert near.payloads[-20:] == numbers(20)


def test_loss_of_a_local_publisher_is_reported_at_both_ends(bridge):
    near, far, publisher = bridge.local_subscriber(), bridge.far_subscriber(), bridge.local_publisher()
    hello = bridge.connect_far(publisher, far)
    before = far.settle(hello)
    publisher.report_loss(7)
    publisher.publish("a.x", b"next")
    assert far.settle(hello + 8) == before + 7
    assert near.settle(hello + 8) == 7
    assert (far.messages[-1].payload, far.messages[-1].gap) == (b"next", 7)


def test_subscribers_that_do_not_count_get_an_advisory(bridge, monkeypatch):
    near, far = bridge.local_subscriber(), bridge.far_publisher()
    bridge.connect_far(far, near)
    with Subscriber(bridge.subscribers, filtering="prefix") as plain:
        plain.subscribe("_OZ.gateway.>")
        bridge.gateway.publisher.wait_for_subscribers("_OZ.gateway.gap", timeout=DEADLINE)
        with without(bridge, "receiver", monkeypatch):
            publish(far, numbers(5))
        seen = {}
        # The gap may be published before the new process is ready.
        while not seen.keys() >= {"gap", "up"}:
            message = plain.receive(timeout=DEADLINE)
            seen[message.subject.rpartition(".")[2]] = json.loads(message.payload)
    assert seen["down"] == seen["up"] == {"process": "receiver"}
    assert 1 <= seen["gap"]["count"] <= 5
    assert len(bytes.fromhex(seen["gap"]["origin"])) == 16


# beginning and ending --------------------------------------------------------------------------------------


def test_wrong_interface_is_an_error_at_once(tmp_path):
    wrong = "epgm://192.0.2.77;239.192.1.1:5555"
    with Gateway(receive=wrong, subscribers=f"ipc://{tmp_path}/s") as gateway:
        running = Thread(gateway.run)
        with pytest.raises(WorkerError, match=r"the receiver cannot start: .*192\.0\.2\.77"):
            running.outcome(2 * DEADLINE)


def test_processes_end_when_the_gateway_is_killed(tmp_path):
    command = ["gateway", "--receive", free_endpoint(), "--bind", f"ipc://{tmp_path}/sub"]
    command += ["--send", free_endpoint(), "--bind-publishers", f"ipc://{tmp_path}/pub"]
    gateway = subprocess.Popen(
        [sys.executable, "-m", "oz", *command], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        assert "ready, receiving epgm://" in gateway.stderr.readline()
        children = children_of(gateway.pid)
        assert len(children) == 2
    finally:
        gateway.kill()
        gateway.communicate()
    until(lambda: not any(is_running(pid) for pid in children))


def test_close_ends_run_and_the_processes_and_frees_the_endpoints(tmp_path):
    ways = {"receive": free_endpoint(), "send": free_endpoint()}
    ways |= {"subscribers": f"ipc://{tmp_path}/sub", "publishers": f"ipc://{tmp_path}/pub"}
    run_and_close(ways)
    run_and_close(ways)


def run_and_close(ways):
    gateway = Gateway(**ways)
    running = Thread(gateway.run)
    until(lambda: gateway.is_ready, 2 * DEADLINE)
    threads = os.listdir("/proc/self/task")
    children = [child for thread in threads for child in children_of(os.getpid(), thread)]
    assert len(children) == 2
    gateway.close()
    running.outcome()
    assert not any(map(is_running, children))
    gateway.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_command_with_a_summary(number):
    command = ["gateway", "--receive", free_endpoint(), "--bind", "tcp://127.0.0.1:*"]
    gateway = subprocess.Popen(
        [sys.executable, "-m", "oz", *command], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        assert "subscribers at tcp://127.0.0.1:" in gateway.stderr.readline()
        gateway.send_signal(number)
        _, said = gateway.communicate(timeout=3 * DEADLINE)
    finally:
        gateway.kill()
    assert gateway.returncode == 0
    assert said == "oz gateway: received 0 and lost 0; sent 0 and lost 0; 0 restarts\n"


def children_of(pid, thread=None):
    path = f"/proc/{pid}/task/{thread or pid}/children"
    with open(path) as listed:
        return [int(word) for word in listed.read().split()]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # The latter where it is gone between opening and reading.
        return False
