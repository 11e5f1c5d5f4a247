from pathlib import Path

import pytest

import oz
from support.scripts import finished, started
from support.waiting import DEADLINE

HERE = Path(__file__).parent


@pytest.mark.parametrize("filtering", ["auto", "prefix"])
def test_a_plain_publisher_feeds_a_subscriber_with_wildcards(filtering):
    subjects = ["time.us.east", "time.us.west", "time.eu.east", "time.us.east.x", "other"]
    with started(HERE / "plain_pub.py", 2) as process:
        port = process.stdout.readline().strip()
        with oz.Subscriber(f"tcp://127.0.0.1:{port}", filtering=filtering) as sub:
            sub.subscribe(["time.*.east", "end"])
            sub.wait_ready(timeout=DEADLINE)
            finished(process, "".join(f"{subject} {n}\n" for n, subject in enumerate(subjects)) + "end\n")
            got = [sub.receive(timeout=DEADLINE).frames for _ in range(3)]
            assert got == [[b"time.us.east", b"0"], [b"time.eu.east", b"2"], [b"end"]]
            assert sub.stats.received == 5
            assert sub.stats.filtered == 2


def test_a_publisher_feeds_a_plain_subscriber_by_prefix():
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        started(HERE / "plain_sub.py", pub.endpoint, "time.", "end") as process,
    ):
        pub.wait_for_subscribers(count=2, timeout=DEADLINE)
        for number, subject in enumerate(["time.a", "other", "time", "time.b"]):
            pub.publish(subject, str(number).encode())
        pub.publish("end")
        assert finished(process).splitlines() == ["time.a 0", "time.b 3"]


def test_closing_at_once_delivers_all_50_000_to_another_process():
    with (
        oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub,
        started(HERE / "plain_sub.py", pub.endpoint, "") as process,
    ):
        pub.wait_for_subscribers(timeout=DEADLINE)
        for number in range(50_000):
            pub.publish("n", b"%d" % number)
        pub.publish("end")
        pub.close(timeout=DEADLINE)
        assert finished(process).splitlines() == [f"n {number}" for number in range(50_000)]
