"""Programs for pyzmq in the forms that public repositories have, with pyzmq's sockets and with oz's.

A program gets the function that makes its SUB and the endpoint of a publisher, and returns the messages that
it received. It ends with the topic `end`. Both sockets must give the same messages. With a pattern in place
of its prefix it must return the messages that match.
"""

import asyncio
import json
import pickle
import queue
import re
import selectors
import threading

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from dropin.conftest import Publisher
from support.waiting import DEADLINE, Thread

TOPICS = ["md.nyse.ibm", "md.nyse.ge", "md.lse.ibm", "md", "mdx.y.ibm", "news.1", "md.nyse.ibm.bid"]
MESSAGES = [
    [topic.encode(), json.dumps({"n": number}).encode(), pickle.dumps(number)]
    for number, topic in enumerate(TOPICS * 3)
]
END = [b"end", b"{}", pickle.dumps(None)]
PATTERN = re.compile(rb"md\.[^.]+\.ibm")


def poller_loop(make, endpoint, begin):
    sub = make(zmq.Context.instance())
    sub.connect(endpoint)
    begin(sub)
    poller, found = zmq.Poller(), []
    poller.register(sub, zmq.POLLIN)
    while True:
        events = dict(poller.poll(timeout=None))
        if sub in events and events[sub] == zmq.POLLIN:
            try:
                topic, text, data = sub.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                continue
            if topic == b"end":
                sub.close()
                return found
            found.append((topic, json.loads(text), pickle.loads(data)))


def poll_and_receive(make, endpoint, begin):
    found = []
    with make(zmq.Context.instance()) as sub:
        begin(sub)
        sub.connect(endpoint)
        while True:
            if sub.poll(timeout=1000):
                topic = sub.recv_string()
                number = sub.recv_json()
                payload = sub.recv_pyobj()
                if topic == "end":
                    return found
                found.append((topic.encode(), number, payload))


def busy_loop_without_blocking(make, endpoint, begin):
    sub, found, wait = make(zmq.Context.instance()), [], threading.Event()
    begin(sub)
    sub.connect(endpoint)
    while True:
        try:
            topic = sub.recv(flags=zmq.NOBLOCK)
        except zmq.Again:
            wait.wait(0.001)
            continue
        parts = []
        while sub.getsockopt(zmq.RCVMORE):
            parts.append(sub.recv())
        if topic == b"end":
            sub.close(linger=0)
            return found
        found.append((topic, json.loads(parts[0]), pickle.loads(parts[1])))


def timeouts_in_a_thread(make, endpoint, begin):
    context, inbox, is_over = zmq.Context.instance(), queue.Queue(), threading.Event()

    def run():
        sub = make(context)
        sub.setsockopt(zmq.RCVTIMEO, 20)
        sub.setsockopt(zmq.LINGER, 0)
        begin(sub)
        sub.connect(endpoint)
        while not is_over.is_set():
            try:
                inbox.put(sub.recv_multipart())
            except zmq.error.Again:
                continue
        sub.close()

    thread, found = Thread(run), []
    while (frames := inbox.get(timeout=DEADLINE))[0] != b"end":
        found.append((frames[0], json.loads(frames[1]), pickle.loads(frames[2])))
    is_over.set()
    thread.outcome()
    return found


def events_of_a_selector(make, endpoint, begin):
    sub, found = make(zmq.Context.instance()), []
    begin(sub)
    sub.connect(endpoint)
    with selectors.DefaultSelector() as selector:
        selector.register(sub.getsockopt(zmq.FD), selectors.EVENT_READ)
        while True:
            flags = sub.getsockopt(zmq.EVENTS)
            while flags & zmq.POLLIN:
                topic, text, data = sub.recv_multipart()
                if topic == b"end":
                    sub.close()
                    return found
                found.append((topic, json.loads(text), pickle.loads(data)))
                flags = sub.getsockopt(zmq.EVENTS)
            selector.select(DEADLINE)


def arrays_without_copy(make, endpoint, begin):
    sub, found = make(zmq.Context.instance()), []
    begin(sub)
    sub.connect(endpoint)
    while True:
        topic = sub.recv()
        head = sub.recv_json()
        frame = sub.recv(copy=False, track=False)
        assert not frame.more
        if topic == b"end":
            sub.close()
            return found
        found.append((topic, head, pickle.loads(memoryview(frame.buffer))))


def one_frame_at_each_poll(make, endpoint, begin):
    sub, frames, found = make(zmq.Context.instance()), [], []
    begin(sub)
    sub.connect(endpoint)
    poller = zmq.Poller()
    poller.register(sub, zmq.POLLIN)
    while True:
        if poller.poll(1000):
            try:
                frames.append(sub.recv(zmq.NOBLOCK))
            except zmq.Again:
                continue
            if not sub.rcvmore:
                if frames[0] == b"end":
                    sub.close()
                    return found
                found.append((frames[0], json.loads(frames[1]), pickle.loads(frames[2])))
                frames = []


BLOCKING = [
    poller_loop,
    one_frame_at_each_poll,
    poll_and_receive,
    busy_loop_without_blocking,
    timeouts_in_a_thread,
    events_of_a_selector,
    arrays_without_copy,
]


async def await_in_a_loop(make, endpoint, begin, context):
    sub, found = make(context), []
    begin(sub)
    sub.connect(endpoint)
    while True:
        topic, text, data = await sub.recv_multipart()
        if topic == b"end":
            sub.close()
            return found
        found.append((topic, json.loads(text), pickle.loads(data)))


async def task_and_queue(make, endpoint, begin, context):
    inbox = asyncio.Queue()

    async def receive():
        sub = make(context)
        begin(sub)
        sub.connect(endpoint)
        try:
            while True:
                topic = await sub.recv_string()
                await inbox.put((topic.encode(), await sub.recv_json(), await sub.recv_pyobj()))
        finally:
            sub.close()

    task, found = asyncio.create_task(receive()), []
    while (item := await inbox.get())[0] != b"end":
        found.append(item)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


async def wait_for_with_timeouts(make, endpoint, begin, context):
    sub, found = make(context), []
    begin(sub)
    sub.connect(endpoint)
    while True:
        try:
            frames = await asyncio.wait_for(sub.recv_multipart(), 0.05)
        except TimeoutError:
            continue
        if frames[0] == b"end":
            sub.close()
            return found
        found.append((frames[0], json.loads(frames[1]), pickle.loads(frames[2])))


async def asyncio_poller(make, endpoint, begin, context):
    sub, found, poller = make(context), [], zmq.asyncio.Poller()
    begin(sub)
    sub.connect(endpoint)
    poller.register(sub, zmq.POLLIN)
    while True:
        if sub in dict(await poller.poll(1000)):
            frames = await sub.recv_multipart()
            if frames[0] == b"end":
                sub.close()
                return found
            found.append((frames[0], json.loads(frames[1]), pickle.loads(frames[2])))


async def own_asyncio_poller(make, endpoint, begin, context):
    sub, found, poller = make(context), [], oz.asyncio.Poller()
    begin(sub)
    sub.connect(endpoint)
    poller.register(sub, zmq.POLLIN)
    while True:
        if sub in dict(await poller.poll(1000)):
            frames = await sub.recv_multipart(zmq.NOBLOCK)
            if frames[0] == b"end":
                sub.close()
                return found
            found.append((frames[0], json.loads(frames[1]), pickle.loads(frames[2])))


async def wait_for_the_first(make, endpoint, begin, context):
    sub, found = make(context), []
    begin(sub)
    sub.connect(endpoint)
    stop = asyncio.get_running_loop().create_future()
    while not stop.done():
        receiving = sub.recv_multipart()
        await asyncio.wait([receiving, stop], return_when=asyncio.FIRST_COMPLETED)
        frames = receiving.result()
        if frames[0] == b"end":
            stop.set_result(None)
        else:
            found.append((frames[0], json.loads(frames[1]), pickle.loads(frames[2])))
    sub.close()
    return found


ASYNCIO = [
    await_in_a_loop,
    task_and_queue,
    wait_for_with_timeouts,
    asyncio_poller,
    own_asyncio_poller,
    wait_for_the_first,
]


def begin_with_prefixes(sub):
    sub.setsockopt(zmq.SUBSCRIBE, b"md.")
    sub.setsockopt_string(zmq.SUBSCRIBE, "end")


def begin_with_a_pattern(sub):
    sub.subscribe("md.*.ibm", dialect="nats")
    sub.subscribe("end")


def run_program(program, make, begin):
    """Run a program against a publisher, and return what it received."""
    with zmq.Context() as context:
        publisher = Publisher(context)

        def run():
            if program in BLOCKING:
                return program(make, publisher.endpoint, begin)

            async def run_asyncio():
                with zmq.asyncio.Context() as own:
                    return await program(make, publisher.endpoint, begin, own)

            return asyncio.run(run_asyncio())

        thread = Thread(run)
        try:
            assert sorted(publisher.expect(2)) == [b"\1end", b"\1md."]
            for frames in [*MESSAGES, END]:
                publisher.send(*frames)
            return thread.outcome()
        finally:
            publisher.socket.close(0)


def make_plain(context):
    return context.socket(zmq.SUB)


def make_drop_in(context):
    kind = oz.asyncio.SubSocket if isinstance(context, zmq.asyncio.Context) else oz.SubSocket
    return context.socket(zmq.SUB, socket_class=kind)


def expected(is_wanted):
    return [
        (topic, json.loads(text), pickle.loads(data)) for topic, text, data in MESSAGES if is_wanted(topic)
    ]


@pytest.mark.parametrize("program", [*BLOCKING, *ASYNCIO])
def test_programs_receive_the_same_by_prefix(program):
    wanted = expected(lambda topic: topic.startswith(b"md."))
    for make in (make_plain, make_drop_in):
        assert run_program(program, make, begin_with_prefixes) == wanted


@pytest.mark.parametrize("program", [*BLOCKING, *ASYNCIO])
def test_programs_receive_what_a_pattern_matches(program):
    assert run_program(program, make_drop_in, begin_with_a_pattern) == expected(PATTERN.fullmatch)


def test_a_topic_and_a_payload_in_one_frame(make_sub, publisher):
    sub = make_sub("10001", dialect="zmq")
    sub.subscribe(r"2000\d \d+", dialect="regex")
    publisher.expect()
    for text in ("10001 17", "10002 18", "20001 19", "20001 x", "10001 20"):
        publisher.send(text)
    assert [sub.recv_string().split()[1] for _ in range(3)] == ["17", "19", "20"]


def test_subscribers_behind_a_proxy_filter_by_pattern(context, made):
    frontend, backend = made(context.socket(zmq.XSUB)), made(context.socket(zmq.XPUB))
    control, capture = made(context.socket(zmq.PAIR)), made(context.socket(zmq.PAIR))
    steering, captured = made(context.socket(zmq.PAIR)), made(context.socket(zmq.PAIR))
    control.bind("inproc://control")
    steering.connect("inproc://control")
    capture.bind("inproc://capture")
    captured.connect("inproc://capture")
    ports = [one.bind_to_random_port("tcp://127.0.0.1") for one in (frontend, backend)]
    proxy = Thread(lambda: zmq.proxy_steerable(frontend, backend, capture, control))
    pub = made(context.socket(zmq.XPUB))
    pub.connect(f"tcp://127.0.0.1:{ports[0]}")
    sub = made(oz.SubSocket(context, dialect="nats"))
    sub.connect(f"tcp://127.0.0.1:{ports[1]}")
    sub.subscribe("a.*.c")
    assert pub.poll(DEADLINE * 1000)
    assert pub.recv() == b"\1a."
    for subject in (b"a.b.d", b"a.b.c"):
        pub.send_multipart([subject, b"payload"])
    assert sub.recv_multipart() == [b"a.b.c", b"payload"]
    steering.send(b"TERMINATE")
    proxy.outcome()


def test_a_proxy_reads_below_the_patterns(context, made, publisher):
    sub = made(oz.SubSocket(context, dialect="nats"))
    sub.connect(publisher.endpoint)
    sub.subscribe("a.*.c")
    publisher.expect()
    outlet, inlet = made(context.socket(zmq.PUSH)), made(context.socket(zmq.PULL))
    outlet.bind("inproc://outlet")
    inlet.connect("inproc://outlet")
    control, steering = made(context.socket(zmq.PAIR)), made(context.socket(zmq.PAIR))
    control.bind("inproc://control")
    steering.connect("inproc://control")
    proxy = Thread(lambda: zmq.proxy_steerable(sub, outlet, None, control))
    for subject in ("a.b.d", "b", "a.b.c"):
        publisher.send(subject, "payload")
    assert [inlet.recv_multipart()[0] for _ in range(2)] == [b"a.b.d", b"a.b.c"]
    steering.send(b"TERMINATE")
    proxy.outcome()


def test_a_program_that_waits_by_monitor_loses_nothing(context, made):
    from zmq.utils.monitor import recv_monitor_message

    pub = made(context.socket(zmq.PUB, socket_class=oz.PubSocket, dialect="nats"))
    monitor = made(pub.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED))
    port = pub.bind_to_random_port("tcp://127.0.0.1")
    sub = made(oz.SubSocket(context, dialect="nats"))
    sub.subscribe("a.*")
    sub.connect(f"tcp://127.0.0.1:{port}")
    assert monitor.poll(DEADLINE * 1000)
    assert recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
    pub.disable_monitor()
    while not sub.poll(20):
        pub.send_multipart([b"a.b.c", b"refused"])
        pub.send_multipart([b"a.b", b"1"])
    assert sub.recv_multipart() == [b"a.b", b"1"]
