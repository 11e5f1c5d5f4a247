"""A program that opens objects of each class, and ends without closing them.

Arguments: the holder of the objects, the way the program ends, and a directory for journals.
"""

import asyncio
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import oz
import oz.asyncio
import oz.journal
import oz.services
import oz.testing

HOLDER, END, DIRECTORY = sys.argv[1], sys.argv[2], Path(sys.argv[3])
# Nodes of programs that run at the same time do not find each other.
BUS = str(os.getpid())
ANY_PORT = "tcp://127.0.0.1:*"
DEAD_ENDPOINT = "tcp://127.0.0.1:1"
RECORDS = 20
SECONDS = 30.0  # for each wait

# As in the tests: the time to wait for a disk is not the time to close.
os.fsync = os.fstat

kept = []


def start_daemon(work):
    threading.Thread(target=work, daemon=True).start()


def repeat(work):
    pause = threading.Event()
    while not pause.wait(0.001):
        work()


def open_writer(name, **options):
    writer = oz.journal.Writer(DIRECTORY / f"{name}-{os.getpid()}", **options)
    for number in range(RECORDS):
        writer.append([("a.b", b"%d" % number)])
    return writer


def open_journals():
    yield open_writer("batch")
    yield open_writer("interval", sync=0.01)
    yield open_writer("none", sync="none")
    yield open_writer("segments", segment_bytes=1, retain_bytes=1 << 30)
    with open_writer("read") as writer:
        pass
    records = oz.journal.Journal(DIRECTORY / f"read-{os.getpid()}").read(follow=True)
    next(records)
    yield writer
    yield records


def open_sockets():
    publisher = oz.Publisher(bind=ANY_PORT)
    yield publisher
    yield oz.Publisher(connect=DEAD_ENDPOINT)
    for count, filtering in enumerate(("publisher", "prefix"), 1):
        subscriber = oz.Subscriber(publisher.endpoint, filtering=filtering)
        yield subscriber.subscribe("a.*")
        publisher.wait_for_subscribers(count=count, timeout=SECONDS)
        publisher.publish("a.b", b"x")
        subscriber.receive(timeout=SECONDS)
        yield subscriber
    recorder = oz.services.Recorder(DIRECTORY / f"recorded-{os.getpid()}", "r.>", source=publisher.endpoint)
    start_daemon(recorder.run)
    yield recorder


def open_nodes():
    server = oz.services.NameServer(ANY_PORT)
    start_daemon(server.run)
    yield server
    node = oz.Node("one", bus=f"a-{BUS}", connect=server.endpoint)
    has_begun = threading.Event()

    def handle(message):
        has_begun.set()
        threading.Event().wait()

    yield node.subscribe("a.*", handler=handle)
    node.publish("a.b", b"x")
    node.flush()
    assert has_begun.wait(SECONDS)
    subscription = node.subscribe("b.*")
    start_daemon(subscription.receive)
    yield subscription
    yield node
    buses = [{"bus": f"a-{BUS}", "connect": server.endpoint}, {"bus": f"b-{BUS}", "connect": server.endpoint}]
    forwarder = oz.services.Forwarder(buses)
    start_daemon(forwarder.run)
    yield forwarder
    proxy = oz.services.Proxy(frontend=ANY_PORT, backend=ANY_PORT)
    start_daemon(proxy.run)
    yield proxy


def open_loops():
    async def open_twins():
        publisher = oz.asyncio.Publisher(bind=ANY_PORT)
        subscriber = oz.asyncio.Subscriber(publisher.endpoint, filtering="publisher")
        subscriber.subscribe("a.*")
        await publisher.wait_for_subscribers(timeout=SECONDS)
        await publisher.publish("a.b", b"x")
        await subscriber.receive(timeout=SECONDS)
        node = oz.asyncio.Node("two", bus=f"c-{BUS}", connect=DEAD_ENDPOINT)
        node.subscribe("a.*")
        return publisher, subscriber, node

    yield from asyncio.run(open_twins())
    bus = oz.testing.Bus()
    yield bus.node("three")
    yield bus


def open_for_busy_daemons():
    writer, publisher = open_writer("busy"), oz.Publisher(bind=ANY_PORT)
    start_daemon(lambda: repeat(lambda: writer.append([("a.b", b"x")])))
    start_daemon(lambda: repeat(lambda: publisher.publish("a.b", b"x")))
    yield writer
    yield publisher


def open_all():
    for opened in (open_journals, open_sockets, open_nodes, open_loops, open_for_busy_daemons):
        yield from opened()


def suspended():
    """Suspend a `with` block for each object. Python ends it when it destroys the generator."""
    with ExitStack() as stack:
        for item in open_all():
            if hasattr(type(item), "__enter__"):
                stack.enter_context(item)
            kept_by_frame.append(item)
        yield


kept_by_frame = []


class Holder:
    held = None


def hold():
    if HOLDER == "global":
        kept.extend(open_all())
    elif HOLDER == "cycle":
        holder = Holder()
        holder.held = [holder, *open_all()]
    elif HOLDER == "suspended":
        kept.append(suspended())
        next(kept[0])
    elif HOLDER in ("daemon", "thread"):
        hold_in_thread()


def hold_in_thread():
    has_opened = threading.Event()

    def work():
        held = list(open_all())
        has_opened.set()
        if HOLDER == "daemon":
            threading.Event().wait()
        threading.main_thread().join()
        held[0].append([("a.b", b"after the main thread")])

    threading.Thread(target=work, daemon=HOLDER == "daemon").start()
    assert has_opened.wait(SECONDS)


def hold_and_exit():
    hold()
    sys.exit(5)


def end():
    if END == "exit":
        sys.exit(3)
    elif END == "exception":
        raise RuntimeError
    elif END == "interrupt":
        signal.raise_signal(signal.SIGINT)
    elif END == "fork":
        if not (child := os.fork()):
            sys.exit(4)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    elif END == "multiprocessing spawn":
        child = multiprocessing.get_context("spawn").Process(target=hold_and_exit)
        child.start()
        child.join()
        sys.exit(child.exitcode)


if __name__ == "__main__":
    faulthandler.enable()
    if not END.startswith("multiprocessing"):
        hold()
    print("ready", flush=True)
    # Without the traceback of the program's own exception, each line on standard error is a fault.
    sys.excepthook = lambda *_: None
    end()
