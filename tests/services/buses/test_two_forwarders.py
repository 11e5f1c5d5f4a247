"""Jobs of a queue group cross two forwarders to three workers. The forwarders are processes of their own."""

import signal
from collections import Counter

import pytest

import oz
from services.buses.test_bridge import members
from support.sizes import in_suite
from support.waiting import DEADLINE, until

JOBS = 100
"""Jobs before each fault, and after the last one."""


@pytest.mark.parametrize("ack", in_suite(["handled"], ["received"]))
def test_each_job_is_done_once_though_forwarders_end_in_turn(make, start_forwarder, ack):
    near = make("near", bus="lan", near="shared", lost_after=2.0)
    forwarders, done, published = dict([start_forwarder(), start_forwarder()]), [], 0
    for number in range(3):
        worker = make(f"worker{number}", bus="wan", near="shared", lost_after=2.0)
        delivery = oz.Delivery(redeliver=ack == "handled")
        worker.subscribe(
            "job.*", lambda message: done.append(message.payload), group="workers", ack=ack, delivery=delivery
        )

    def publish():
        nonlocal published
        for _ in range(JOBS):
            near.publish(f"job.{published % 7}", published)
            published += 1

    def wait():
        """Wait until the publisher knows which forwarder stands by."""
        until(lambda: members(near, "workers") == {item: item != min(forwarders) for item in forwarders})

    wait()
    for number, choose in (
        (signal.SIGTERM, min),
        (signal.SIGKILL, min),
        (signal.SIGTERM, max),
        (signal.SIGKILL, max),
    ):
        publish()
        process = forwarders.pop(choose(forwarders))
        process.send_signal(number)
        publish()
        process.wait(DEADLINE)
        forwarders.update([start_forwarder()])
        wait()
    publish()
    until(lambda: len(set(done)) == published, timeout=2 * DEADLINE)
    assert Counter(done) == dict.fromkeys(range(published), 1)
