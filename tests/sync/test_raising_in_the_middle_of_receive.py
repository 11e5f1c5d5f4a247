"""Signal handlers that raise in the middle of `receive`, at each function of oz that is called, in turn."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

import oz
from support.waiting import DEADLINE, until

OF_OZ = str(Path(oz.__file__).parent)
MOST_CALLS = 400
BATCH = 5


class Interrupted(BaseException):
    """What the handler raises."""


class AtCall:
    """Raises once, where the n-th function of oz begins: Python runs signal handlers there."""

    def __init__(self, number):
        self.left = number

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, *_):
        if frame.f_code.co_filename.startswith(OF_OZ) and self.left:
            self.left -= 1
            if not self.left:
                raise Interrupted
        return None


def receive_interrupted(subscriber, number):
    """Receive with a handler that raises at the n-th call; tell whether it has raised."""
    with AtCall(number) as at_call, suppress(Interrupted):
        subscriber.receive(timeout=DEADLINE)
    return not at_call.left


@pytest.mark.parametrize("headers", [None, {"a": 1}], ids=["plain", "headers"])
def test_what_a_raising_handler_costs_is_reported(headers):
    gaps = []
    with (
        oz.Publisher("tcp://127.0.0.1:*") as publisher,
        oz.Subscriber(publisher.endpoint, filtering="publisher", on_gap=gaps.append) as subscriber,
    ):
        subscriber.subscribe("a")
        subscriber.wait_ready(timeout=DEADLINE)

        def publish_batch():
            with publisher.batch():
                for _ in range(BATCH):
                    publisher.publish("a", b"", headers=headers)

        number, has_raised = 0, True
        while has_raised:
            number += 1
            assert number < MOST_CALLS
            publish_batch()
            has_raised = receive_interrupted(subscriber, number)
            # Shows what is missing before it.
            publish_batch()

            def is_accounted_for(published=number * 2 * BATCH):
                with suppress(oz.Timeout):
                    subscriber.receive_many(2 * BATCH, timeout=0.01)
                known = subscriber.stats.delivered + subscriber.stats.lost
                unknown = sum(gap.count is None for gap in gaps)
                return published - BATCH * unknown <= known <= published

            until(is_accounted_for)
    assert number > 5
