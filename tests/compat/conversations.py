"""Sockets, nodes, a name server and a forwarder that talk, with a tap on the line; for write.py."""

import socket
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager

from tap import Tap

import oz
from oz.services.forwarder import Forwarder
from oz.services.nameserver import NameServer

SECONDS = 30


def all_of_them():
    """Hold one after the other; give the name of each, and its tap."""
    for hold in (sockets, shared, last_values, plain, nodes, naming, forwarded, forwarding):
        with ExitStack() as stack:
            tap = hold(stack)
        yield hold.__name__, tap


def directory(stack):
    return stack.enter_context(tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp"))


def free_endpoint():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"tcp://127.0.0.1:{one.getsockname()[1]}"


@contextmanager
def running(service):
    thread = threading.Thread(target=service.run)
    thread.start()
    yield service
    service.stop()
    thread.join()


def asked(node, subject, payload):
    """Ask until somebody answers."""
    while True:
        try:
            return node.request(subject, payload, SECONDS)
        except oz.NoResponders:
            time.sleep(0.01)
        except oz.ReplyError as error:
            return error


def sockets(stack):
    """Subscribe in several ways, publish, lose, take back, close."""
    pub = stack.enter_context(oz.Publisher("tcp://127.0.0.1:*", last_value=True))
    tap = Tap(pub.endpoint)
    with oz.Subscriber(tap.endpoint, filtering="publisher") as sub:
        one = sub.subscribe("a.*")
        sub.subscribe(["^b[.](x|y)$", "^c[.]"], dialect="regex")
        for policy in ("turn", "sticky", "first"):
            sub.subscribe("job.>", group=f"g-{policy}", policy=policy)
        for keep in ("latest", "drop_oldest", "drop_newest"):
            sub.subscribe("kept.>", keep=keep, max_waiting=3)
        sub.wait_ready(SECONDS)
        pub.publish("a.1", b"lone")
        with pub.batch():
            for number in range(5):
                pub.publish(f"a.{number}", b"%d" % number)
        pub.publish("a.rich", b"x", headers={"n": 1, "t": "é", "b": b"\xff"}, message_id=(b"series", 7))
        pub.publish("a.large", b"L" * 70_000)
        pub.publish("job.1", b"x", key="key")
        pub.report_loss(3)
        pub.publish("a.end", b"")
        while sub.receive(SECONDS).subject != "a.end":
            pass
        one.unsubscribe()
        sub.wait_ready(SECONDS)
    return tap


def shared(stack):
    pub = stack.enter_context(oz.Publisher("tcp://127.0.0.1:*"))
    tap = Tap(pub.endpoint)
    with oz.Subscriber(tap.endpoint, filtering="publisher", shared=True) as sub:
        sub.subscribe("a.*")
        sub.wait_ready(SECONDS)
        pub.publish("a.1", b"x")
        sub.receive(SECONDS)
    return tap


def last_values(stack):
    pub = stack.enter_context(oz.Publisher("tcp://127.0.0.1:*", last_value=True))
    for number in range(3):
        pub.publish(f"a.{number}", b"last", headers={"n": number} if number else None)
    tap = Tap(pub.endpoint)
    with oz.Subscriber(tap.endpoint, filtering="publisher") as sub:
        sub.subscribe("a.*", last_value=True)
        for _ in range(3):
            sub.receive(SECONDS)
    return tap


def plain(stack):
    """Filter by prefix: what any SUB and any PUB say."""
    pub = stack.enter_context(oz.Publisher("tcp://127.0.0.1:*"))
    tap = Tap(pub.endpoint)
    with oz.Subscriber(tap.endpoint) as sub:
        sub.subscribe("a.*")
        pub.wait_for_subscribers(1, timeout=SECONDS)
        pub.publish("a.1", b"x")
        sub.receive(SECONDS)
    return tap


def answer(message):
    if message.payload == "raise":
        raise ValueError("as asked")
    message.reply({"answer": message.payload})


def nodes(stack):
    """Meet over TCP, ask each other, fail, part. The tap is where two listens to one."""
    one = stack.enter_context(oz.Node("one", bind="tcp://127.0.0.1:*", directory=directory(stack)))
    tap = Tap(one.endpoint)
    with oz.Node("two", bind="tcp://127.0.0.1:*", directory=directory(stack), peers=tap.endpoint) as two:
        one.wait_for_peers(["two"], SECONDS)
        two.wait_for_peers(["one"], SECONDS)
        one.subscribe("one.*", handler=answer)
        two.subscribe("two.*", handler=answer, group="workers")
        heard = two.subscribe("news.>")
        two.wait_ready(SECONDS)
        for subject, payload in (("one.a", "q"), ("one.a", "raise")):
            asked(two, subject, payload)
        asked(one, "two.a", "q")
        one.publish("news.1", {"n": 1}, headers={"h": "x"})
        heard.receive(SECONDS)
        one.close()
    return tap


def naming(stack):
    """Find each other by a name server, with the tap between it and one of the nodes."""
    server = stack.enter_context(running(NameServer("tcp://127.0.0.1:*", name="ns1")))
    tap = Tap(server.endpoint)
    with oz.Node("one", bind="tcp://127.0.0.1:*", directory=directory(stack), nameserver=tap.endpoint) as one:
        where = {"bind": "tcp://127.0.0.1:*", "directory": directory(stack)}
        with oz.Node("two", nameserver=server.endpoint, **where) as two:
            one.wait_for_peers(["two"], SECONDS)
            two.wait_for_peers(["one"], SECONDS)
        while one.peers:
            time.sleep(0.01)
    return tap


def forwarded(stack):
    """The tap is where the forwarder listens to a node."""
    node = free_endpoint()
    tap = Tap(node)
    between = Forwarder(
        [
            {"bus": "lan", "directory": directory(stack), "bind": "tcp://127.0.0.1:*", "peers": tap.endpoint},
            {"bus": "wan", "directory": (wan := directory(stack))},
        ],
        name="between",
    )
    stack.enter_context(running(stack.enter_context(between)))
    one = oz.Node("one", bus="lan", directory=directory(stack), bind=node)
    two = oz.Node("two", bus="wan", directory=wan)
    with one, two:
        two.subscribe("two.*", handler=answer)
        asked(one, "two.a", "q")
    return tap


def forwarding(stack):
    """The tap is where a node listens to the forwarder."""
    side = free_endpoint()
    tap = Tap(side)
    between = Forwarder(
        [
            {"bus": "lan", "directory": directory(stack), "bind": side},
            {"bus": "wan", "directory": (wan := directory(stack))},
        ],
        name="between",
    )
    stack.enter_context(running(stack.enter_context(between)))
    where = {"bind": "tcp://127.0.0.1:*", "directory": directory(stack)}
    with oz.Node("one", bus="lan", peers=tap.endpoint, **where) as one:
        one.subscribe("one.*", handler=answer)
        with oz.Node("two", bus="wan", directory=wan) as two:
            asked(two, "one.a", "q")
    return tap
