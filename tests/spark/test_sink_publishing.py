"""The publication of a batch: in order, to all who were there, whole; or an error that says what to do."""

import socket
import threading
from contextlib import contextmanager
from zlib import crc32

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import msgpack
import pyarrow as pa
import zmq

import oz
from oz.errors import SinkError
from oz.spark.sink import publishing
from oz.spark.sink.columns import STAGED
from oz.spark.sink.publishing import BatchDelivery, series_of
from oz.spark.sink.settings import read_settings
from oz.spark.sink.staging import Staged
from spark.sink_listening import Listening
from support.ports import lasting_endpoint
from support.waiting import Thread, until


@pytest.fixture(autouse=True)
def _nobody_was_there(monkeypatch):
    monkeypatch.setattr(publishing, "_seen", {})


def part(partition, subjects, payloads=None, headers=None, keys=None):
    """Stage a partition in its message, each row in an Arrow batch of its own but the first two."""
    count = len(subjects)
    columns = [subjects, payloads or [b""] * count, headers or [None] * count, keys or [None] * count]
    batch = pa.RecordBatch.from_arrays([pa.array(one, pa.large_binary()) for one in columns], schema=STAGED)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, STAGED) as writer:
        for one in [
            batch.slice(0, 2),
            *(batch.slice(row, 1) for row in range(2, min(count, 10))),
            batch.slice(10),
        ]:
            writer.write_batch(one)
    data = sink.getvalue().to_pybytes()
    return Staged("query", partition, count, crc=crc32(data), data=data)


def settings(batch=0, **options):
    return read_settings(
        {"timeout": "60", **{name: str(text) for name, text in options.items()}}, is_streaming=False
    )


def deliver(parts, batch=0, after_arrow_batch=None, **options):
    delivery = BatchDelivery(settings(**options), batch, "")
    if after_arrow_batch is not None:
        publish_batch = delivery._publish_batch

        def publish_and_call(*arguments):
            publish_batch(*arguments)
            after_arrow_batch()

        delivery._publish_batch = publish_and_call
    delivery.publish(parts)
    return delivery


PARTS = [part(0, [b"a.0", b"a.1", b"a.2"]), part(1, [b"b.0"]), part(3, [b"d.%d" % row for row in range(500)])]
SUBJECTS = ["a.0", "a.1", "a.2", "b.0", *(f"d.{row}" for row in range(500))]


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_rows_arrive_in_the_order_of_partition_and_row(filtering):
    with Listening(filtering=filtering) as sub:
        assert deliver(PARTS, endpoint=sub.endpoint).published == 504
        assert [message.subject for message in sub.received(504)] == SUBJECTS


def test_each_row_has_an_id_of_query_batch_partition_and_row():
    with Listening(filtering="publisher") as sub:
        deliver(PARTS, batch=7, endpoint=sub.endpoint)
        ids = [(message.subject, message.message_id) for message in sub.received(504)]
    rows = [
        ("a.0", 0, 0),
        ("a.1", 0, 1),
        ("a.2", 0, 2),
        ("b.0", 1, 0),
        *((f"d.{row}", 3, row) for row in range(500)),
    ]
    assert ids == [(subject, (series_of("query", 7, partition), row)) for subject, partition, row in rows]


def test_a_subscriber_that_dedupes_gets_once_what_is_published_again():
    with Listening(filtering="publisher", dedupe=True) as sub:
        deliver(PARTS, batch=7, endpoint=sub.endpoint)
        deliver(PARTS, batch=7, endpoint=sub.endpoint)
        deliver(PARTS[:1], batch=8, endpoint=sub.endpoint)
        assert [message.subject for message in sub.received(507)] == [*SUBJECTS, "a.0", "a.1", "a.2"]
        assert sub.sub.stats.repeated == 504


def test_series_are_16_bytes_and_never_the_same():
    keys = [(query, batch, partition) for query in "ab" for batch in (0, 1, 11) for partition in (0, 1, 11)]
    series = {series_of(*key) for key in keys}
    assert len(series) == len(keys)
    assert {len(one) for one in series} == {16}
    assert series_of("a", 1, 1) == series_of("a", 1, 1)


def test_headers_key_and_further_frames_arrive():
    packed = msgpack.packb({"h": "v", "oz-more": [b"second"]})
    with Listening(filtering="publisher") as sub:
        rows = part(0, [b"a", b"b"], [b"1", b"2"], [packed, None], [b"k", None])
        deliver([rows], endpoint=sub.endpoint)
        first, second = sub.received(2)
    assert (first.subject, first.payload, first.frames[2:]) == ("a", b"1", [b"second"])
    assert dict(first.headers) == {"h": "v"}
    assert (second.payload, dict(second.headers or {})) == (b"2", {})


def test_nobody_there_is_an_error_that_names_the_options():
    with pytest.raises(SinkError) as raised:
        deliver(PARTS, endpoint="tcp://127.0.0.1:1", timeout=0.2)
    said = str(raised.value)
    assert said.startswith("tcp://127.0.0.1:1: 0 of 1 subscriptions came within 0.2 s")
    assert "option timeout more seconds" in said
    assert "subscribers=0" in said


def test_with_subscribers_0_rows_go_into_the_void():
    assert deliver(PARTS, endpoint="tcp://127.0.0.1:1", subscribers=0).published == 504


@pytest.fixture
def _somebody_is_there(monkeypatch):
    """Have the time that the options give begin when a first subscriber is there."""
    whole = BatchDelivery._opened

    def opened(delivery):
        publisher = whole(delivery)
        publisher.wait_for_subscribers(timeout=60)
        return publisher

    monkeypatch.setattr(BatchDelivery, "_opened", opened)


@pytest.mark.usefixtures("_somebody_is_there")
def test_it_waits_for_as_many_as_it_was_told():
    with Listening() as sub, pytest.raises(SinkError, match=r"1 of 2 subscriptions came within 0\.5 s"):
        deliver(PARTS, endpoint=sub.endpoint, subscribers=2, timeout=0.5)
    with Listening(">", "a.*") as sub:
        deliver(PARTS, endpoint=sub.endpoint, subscribers=2)


def test_who_was_there_at_the_batch_before_is_waited_for(monkeypatch):
    endpoint = lasting_endpoint()
    monkeypatch.setattr(
        publishing, "_RETURN", 60.0
    )  # the slow one takes up to 1 s, and more on a busy machine
    quick, slow = (Listening(bind=None, connect=endpoint, interval=each) for each in (50, 500))
    with quick, slow:
        deliver(PARTS, bind=endpoint, subscribers=2)
        deliver(PARTS, bind=endpoint)
        for sub in (quick, slow):
            assert [message.subject for message in sub.received(1008)] == SUBJECTS * 2


def test_an_address_that_is_still_held_is_waited_for():
    held = oz.Publisher("tcp://127.0.0.1:*")
    with Listening(bind=None, connect=held.endpoint) as sub:
        threading.Timer(0.4, held.close).start()
        deliver(PARTS, bind=held.endpoint)
        assert len(sub.received(504)) == 504


def test_an_address_that_stays_held_is_an_error_that_names_it():
    with oz.Publisher("tcp://127.0.0.1:*") as held:
        with pytest.raises(SinkError) as raised:
            deliver(PARTS, bind=held.endpoint, timeout=0.2)
        assert held.endpoint in str(raised.value)


def test_a_subscriber_that_leaves_meanwhile_is_an_error(monkeypatch):
    made = []
    whole = BatchDelivery._opened
    monkeypatch.setattr(BatchDelivery, "_opened", lambda self: made.append(whole(self)) or made[0])
    sub = Listening()

    def leave():
        sub.close()
        until(lambda: not made[0].interest("a"))

    with pytest.raises(SinkError, match="a subscriber left while a batch was published"):
        deliver(PARTS, after_arrow_batch=leave, endpoint=sub.endpoint)


def test_who_leaves_and_comes_back_meanwhile_gets_the_whole_batch_again(monkeypatch):
    endpoint, made = lasting_endpoint(), []
    whole = BatchDelivery._opened
    monkeypatch.setattr(BatchDelivery, "_opened", lambda self: made.append(whole(self)) or made[-1])
    there = [Listening(filtering="publisher", bind=None, connect=endpoint)]

    def leave_and_come_back():
        if len(there) == 1:
            there[0].close()
            until(lambda: not made[0].interest("a"))
            there.append(Listening(filtering="publisher", bind=None, connect=endpoint))
            made[0].wait_for_subscribers(timeout=60)

    deliver(PARTS, after_arrow_batch=leave_and_come_back, bind=endpoint, absent="wait")
    with there[1] as sub:
        until(lambda: {message.subject for message in sub.messages} == set(SUBJECTS))
    assert len(made) == 2


@contextmanager
def deaf(endpoint=None, buffer=4096):
    """Give a socket that asks for everything and reads nothing, and where it looks for a publisher."""
    endpoint = endpoint or lasting_endpoint()
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        for option, value in ((zmq.RCVHWM, 1), (zmq.RCVBUF, buffer), (zmq.LINGER, 0), (zmq.RCVTIMEO, 20_000)):
            sub.set(option, value)
        sub.subscribe(b"")
        sub.connect(endpoint)
        yield sub, endpoint


@pytest.mark.parametrize(
    ("rows", "said"), [(120_000, "at its high-water mark for 1 s"), (20_000, "not all of a batch went out")]
)
@pytest.mark.usefixtures("_somebody_is_there")
def test_a_subscriber_that_does_not_read_is_an_error_in_time(rows, said):
    many = part(0, [b"a"] * rows, [b"x" * 500] * rows)
    with deaf() as (_, endpoint), pytest.raises(SinkError) as raised:
        deliver([many], bind=endpoint, timeout=1)
    assert said in str(raised.value)
    assert "option timeout more seconds" in str(raised.value)


def test_a_subscriber_that_reads_late_gets_everything():
    subjects = [b"a.%d" % row for row in range(150_000)]
    with deaf() as (sub, endpoint):
        # More than ZeroMQ's queues and the system's buffers take, however large those have grown.
        many = part(0, subjects, [b"x" * 500] * len(subjects))
        delivering = Thread(lambda: deliver([many], bind=endpoint))
        delivering.wait_until_stuck()
        assert [sub.recv_multipart()[0] for _ in subjects] == subjects
        assert delivering.outcome().published == 150_000


SOME, ROOM = part(0, [b"a.%d" % row for row in range(200)], [b"x" * 500] * 200), 1 << 17
"""More than a socket takes that does not read, and bytes that its system takes."""


class Delivery:
    """A batch that is published, and not read yet."""

    def __init__(self, endpoint):
        published = threading.Event()
        self.thread = Thread(lambda: deliver([SOME], after_arrow_batch=published.set, bind=endpoint))
        assert published.wait(60)
        self.thread.wait_until_stuck()
        assert self.thread.is_alive()


def test_a_batch_is_over_when_subscribers_have_read_it():
    with deaf(buffer=ROOM) as (sub, endpoint):
        delivery = Delivery(endpoint)
        assert [sub.recv_multipart()[0] for _ in range(200)] == [b"a.%d" % row for row in range(200)]
        assert delivery.thread.outcome().published == 200


def test_a_subscriber_that_leaves_before_it_has_read_the_batch_is_an_error():
    with deaf(buffer=ROOM) as (sub, endpoint):
        delivery = Delivery(endpoint)
        sub.close()
        with pytest.raises(SinkError, match="a subscriber left while a batch was published"):
            delivery.thread.outcome()


def test_a_subscriber_that_leaves_when_it_has_read_the_batch_is_none():
    with deaf(buffer=ROOM) as (sub, endpoint):
        delivery = Delivery(endpoint)
        for _ in range(200):
            sub.recv_multipart()
        sub.close()
        assert delivery.thread.outcome().published == 200


@pytest.mark.usefixtures("_somebody_is_there")
def test_a_subscriber_that_does_not_read_to_the_end_is_an_error_in_time():
    said = r"not all of a batch was read within 0\.5 s"
    with deaf(buffer=ROOM) as (_, endpoint), pytest.raises(SinkError, match=said):
        deliver([SOME], bind=endpoint, timeout=0.5)


def test_one_that_does_not_read_is_said_where_enough_others_do(caplog, monkeypatch):
    endpoint, whole = lasting_endpoint(), BatchDelivery._opened

    def opened(delivery):
        publisher = whole(delivery)
        publisher.wait_for_subscribers(2, timeout=60)
        return publisher

    monkeypatch.setattr(BatchDelivery, "_opened", opened)
    with Listening(bind=None, connect=endpoint) as sub, deaf(endpoint, ROOM):
        deliver([SOME], bind=endpoint, timeout=0.5)
        sub.received(200)
    assert "1 of 2 connections did not read a batch to its end in time" in caplog.text


def test_who_only_connects_is_not_waited_for(caplog, monkeypatch):
    endpoint, strangers, whole = lasting_endpoint(), [], BatchDelivery._opened
    host, port = endpoint.removeprefix("tcp://").split(":")

    def opened(delivery):
        publisher = whole(delivery)
        strangers.append(socket.create_connection((host, int(port))))
        # The greeting of ZeroMQ: the connection stands.
        assert strangers[0].recv(1)
        return publisher

    monkeypatch.setattr(BatchDelivery, "_opened", opened)
    with Listening(bind=None, connect=endpoint) as sub:
        assert deliver(PARTS, bind=endpoint).published == 504
        sub.received(504)
    strangers[0].close()
    assert "did not read" not in caplog.text
