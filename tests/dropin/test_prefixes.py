"""A program that was written for pyzmq and subscribes with text, which is a prefix there."""

import asyncio
import re
import warnings
from contextlib import contextmanager
from functools import partial

import pytest
import zmq
import zmq.asyncio

import oz
import oz.asyncio
from support.inside import engine_of
from support.waiting import DEADLINE, Thread


@contextmanager
def publishing(*messages):
    """Publish messages again and again, as programs in the wild do; give the port."""
    is_over = []
    with zmq.Context() as context, context.socket(zmq.PUB) as pub:
        # What is left when the test is over is for nobody; ZeroMQ has waited for ever to send it.
        pub.linger = 0
        port = pub.bind_to_random_port("tcp://127.0.0.1")

        def publish():
            while not is_over:
                for message in messages:
                    pub.send_multipart(message)
                pub.poll(5, 0)

        thread = Thread(publish)
        try:
            yield port
        finally:
            is_over.append(True)
            thread.outcome()


def program(port, make_socket):
    """Subscribe, poll and receive: not a word of it is oz's."""
    context = zmq.Context()
    sub = make_socket(context)
    try:
        sub.connect(f"tcp://127.0.0.1:{port}")
        sub.subscribe("log.web")
        for _ in range(3):
            if sub.poll(1000 * DEADLINE):
                message = sub.recv_string()
                status = message.split()[1]
        return status
    finally:
        sub.close(0)
        context.term()


LOG = [b"log.web 200 /index.html"]


@pytest.mark.parametrize(
    "make_socket",
    [
        lambda context: context.socket(zmq.SUB),
        lambda context: context.socket(zmq.SUB, socket_class=oz.Subscriber, dialect="zmq"),
        lambda context: oz.Subscriber(context=context, dialect="zmq"),
    ],
    ids=["pyzmq", "socket_class", "constructor"],
)
def test_the_dialect_zmq_makes_it_work_unchanged(make_socket):
    with publishing([b"other"], LOG) as port:
        assert program(port, make_socket) == "200"


def test_without_the_dialect_it_is_told_what_to_do():
    text = re.escape("use b'log.web' or dialect='zmq'")
    with publishing(LOG) as port, pytest.raises(oz.SubjectWarning, match=text):
        program(port, lambda context: context.socket(zmq.SUB, socket_class=oz.Subscriber))


def test_the_warning_is_given_once_and_names_the_line_that_receives():
    with publishing(LOG, [b"log.web"]) as port, oz.Subscriber(f"tcp://127.0.0.1:{port}") as sub:
        sub.subscribe("log.web")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                assert sub.recv_multipart() == [b"log.web"]
    told = [one for one in caught if one.category is oz.SubjectWarning]
    assert len(told) <= 1
    assert [one.filename for one in told] in ([], [__file__])


def stage(*patterns, **options):
    pub = oz.Publisher("tcp://127.0.0.1:*", delimiter=options.get("delimiter"))
    sub = oz.Subscriber(pub.endpoint, **options)
    for pattern in patterns:
        sub.subscribe(pattern)
    return pub, sub


WAYS = {
    "receive": lambda sub: sub.receive(DEADLINE).subject,
    "receive for ever": lambda sub: sub.receive().subject,
    "receive_many": lambda sub: sub.receive_many(timeout=DEADLINE)[0].subject,
    "receive_batches": lambda sub: sub.receive_batches(timeout=DEADLINE)[0].subjects[0],
    "iteration": lambda sub: next(iter(sub)).subject,
    "recv_multipart": lambda sub: sub.recv_multipart()[0].decode(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_warning_that_is_an_error_loses_no_message(way):
    pub, sub = stage("a")
    with pub, sub:
        pub.wait_for_subscribers(timeout=DEADLINE)
        for subject in ("ab", "a.b", "a"):
            pub.publish(subject)
        with pytest.raises(oz.SubjectWarning, match="'ab'"):
            WAYS[way](sub)
        assert WAYS[way](sub) in ("a", b"a")
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0)
        assert sub.stats.filtered == 2


def test_asyncio_warns_too():
    async def main():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
            oz.asyncio.Subscriber(pub.endpoint) as sub,
        ):
            sub.subscribe("a")
            await pub.wait_for_subscribers(timeout=DEADLINE)
            await pub.publish("ab")
            await pub.publish("a")
            with pytest.raises(oz.SubjectWarning):
                await sub.receive(timeout=DEADLINE)
            assert (await sub.receive(timeout=DEADLINE)).subject == "a"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        (b"a", {}),
        (oz.compile("a"), {}),
        ("a.*", {}),
        ("a", {"delimiter": b" "}),
        ("a", {"filtering": "publisher"}),
    ],
)
def test_nobody_else_is_warned(pattern, options):
    pub, sub = stage(pattern, "end", **options)
    with pub, sub:
        if "filtering" in options:
            sub.wait_ready(DEADLINE)
        else:
            pub.wait_for_subscribers(2, timeout=DEADLINE)
        for subject in ("ab", "a.b.c", "end"):
            pub.publish(subject)
        while sub.receive(timeout=DEADLINE).subject != "end":
            pass


def test_nobody_is_warned_who_has_had_a_message_or_names_the_dialect():
    pub, sub = stage("a")
    with pub, sub, oz.Subscriber(pub.endpoint) as other:
        other.subscribe("a", dialect="nats")
        pub.wait_for_subscribers(2, timeout=DEADLINE)
        for subject in ("a", "ab", "a"):
            pub.publish(subject)
        for one in (sub, other):
            assert [one.receive(timeout=DEADLINE).subject for _ in range(2)] == ["a", "a"]


def test_text_with_a_wildcard_that_is_no_pattern_is_warned_of():
    with oz.Subscriber() as sub:
        setting = partial(sub.setsockopt_string, zmq.SUBSCRIBE)
        with pytest.warns(
            oz.SubjectWarning, match=r"'market data\.\*' has a wildcard .* white space"
        ) as caught:
            setting("market data.*")
        assert caught[0].filename == __file__
        setting("market data.")
        setting("market.")
        setting("market.*")
        assert [one.patterns[0].dialect for one in engine_of(sub).declarer.standing()] == [
            "zmq",
            "zmq",
            "zmq",
            "nats",
        ]
        sub.setsockopt_string(zmq.UNSUBSCRIBE, "market data.*")
        assert len(engine_of(sub).declarer.standing()) == 3


# CONFLATE, which keeps one message of all


@pytest.mark.parametrize("pattern", ["a.*", "a", "*.b", ["a.*"]])
def test_conflate_and_a_pattern_are_refused_in_either_order(pattern):
    with oz.Subscriber() as sub:
        sub.setsockopt(zmq.CONFLATE, 1)
        with pytest.raises(ValueError, match="overflow='conflate'"):
            sub.subscribe(pattern)
        assert engine_of(sub).declarer.standing() == []
        sub.conflate = 0
        sub.subscribe(pattern)
        with pytest.raises(ValueError, match="overflow='conflate'"):
            sub.conflate = 1
        assert sub.conflate == 0


def test_conflate_is_refused_where_publishers_filter():
    with oz.Subscriber(filtering="publisher") as sub, pytest.raises(ValueError, match="overflow='conflate'"):
        sub.setsockopt(zmq.CONFLATE, 1)


def test_conflate_and_a_prefix_mean_what_they_do_in_pyzmq():
    with zmq.Context() as context, context.socket(zmq.PUB) as pub, oz.Subscriber(context=context) as sub:
        sub.conflate = 1
        sub.subscribe(b"a")
        port = pub.bind_to_random_port("tcp://127.0.0.1")
        sub.connect(f"tcp://127.0.0.1:{port}")
        number = 0
        while not sub.poll(10):
            pub.send_string(f"a{number}")
            number += 1
        assert sub.recv_string().startswith("a")


def test_conflate_and_a_literal_with_a_delimiter_go_together():
    with oz.Subscriber(delimiter=b" ") as sub:
        sub.conflate = 1
        sub.subscribe("a")
        with pytest.raises(ValueError, match="CONFLATE"):
            sub.subscribe("a.*")
