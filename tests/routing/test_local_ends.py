"""What becomes of messages that subscribers on the same host have not taken when a publisher ends."""

import asyncio
import sys
import threading

import pytest
import zmq.asyncio

import oz
import oz.asyncio
from support.scripts import started
from support.waiting import DEADLINE, until

SENT = 40
"""More than a subscriber reads at once, and less than a quarter of what the system takes: above that ZeroMQ
waits for room (unix_writable in Linux), and closing takes all its time."""

PAYLOAD = b"." * 300

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no ipc://")

PUBLISHER = """
import sys, oz
pub = oz.Publisher(sys.argv[1])
print("here", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    pub.publish("a.x", b"." * 300)
    pub.flush()
if sys.argv[3] == "closes":
    pub.close(timeout=float(sys.argv[4]))
print("published", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def endpoint(tmp_path_factory):
    # Short: the path of a socket has 107 bytes.
    return f"ipc://{tmp_path_factory.mktemp('s')}/s"


def publish(pub):
    for _ in range(SENT):
        pub.publish("a.x", PAYLOAD)
        pub.flush()


def watch(endpoint, gaps, mark=1, **options):
    sub = oz.Subscriber(
        endpoint,
        filtering="publisher",
        high_water_mark=mark,
        on_gap=lambda gap: gaps.append(gap.count),
        **options,
    )
    sub.subscribe("a.>")
    sub.wait_ready(timeout=DEADLINE)
    return sub


@pytest.mark.parametrize("mark", [1, 10])
@pytest.mark.parametrize("shared", [False, True])
def test_what_a_publisher_sent_before_it_closed_arrives_at_a_full_subscriber(endpoint, mark, shared):
    gaps = []
    pub = oz.Publisher(endpoint)
    with watch(endpoint, gaps, mark, shared=shared) as sub:
        publish(pub)
        pub.close(timeout=DEADLINE)
        for _ in range(SENT):
            sub.receive(timeout=DEADLINE)
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0.05)
    assert gaps == []


def test_the_same_holds_in_a_context_of_yours_and_for_asyncio(endpoint):
    async def close_one(context):
        pub = oz.asyncio.Publisher(endpoint, context=context)
        with await asyncio.to_thread(watch, endpoint, []) as sub:
            for _ in range(SENT):
                await pub.publish("a.x", PAYLOAD)
                await asyncio.sleep(0)
            await pub.close(timeout=DEADLINE)
            return sum(1 for _ in range(SENT) if sub.receive(timeout=DEADLINE))

    assert asyncio.run(close_one(None)) == SENT
    with zmq.asyncio.Context() as context:
        assert asyncio.run(close_one(context)) == SENT


def test_a_connection_is_dropped_once_all_is_taken(endpoint):
    pub = oz.Publisher(endpoint)
    with watch(endpoint, []) as sub:
        publish(pub)
        pub.close(timeout=DEADLINE)
        for _ in range(SENT):
            sub.receive(timeout=DEADLINE)
    until(lambda: all(one.name != "oz-untaken" for one in threading.enumerate()))


def test_a_process_that_closes_and_ends_waits_for_what_is_untaken(endpoint):
    with started("-c", PUBLISHER, endpoint, SENT, "closes", DEADLINE) as process:
        assert process.stdout.readline() == "here\n"
        gaps = []
        with watch(endpoint, gaps) as sub:
            process.stdin.write("\n\n")
            process.stdin.flush()
            assert process.stdout.readline() == "published\n"
            for _ in range(SENT):
                sub.receive(timeout=DEADLINE)
            assert process.wait(DEADLINE) == 0
            assert gaps == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_publisher_that_is_killed_is_a_gap_without_a_count(endpoint, shared):
    with started("-c", PUBLISHER, endpoint, SENT, "is killed") as process:
        assert process.stdout.readline() == "here\n"
        gaps = []
        with watch(endpoint, gaps, shared=shared) as sub:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "published\n"
            process.kill()
            process.wait(DEADLINE)

            def take():
                try:
                    sub.receive(timeout=0.2)
                except oz.Timeout:
                    return bool(gaps)

            until(take)
            assert gaps == [None]
