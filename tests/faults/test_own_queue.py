"""The full queue of a subscription keeps the gaps that publishers have reported."""

from faults import oracle
from oz.message import Gap
from oz.subscriber.message import Arrival, Message
from oz.subscriber.queue import Queue

ORIGIN = b"origin of a test"


def message(number):
    return Message("t", b"", None, Arrival(ORIGIN, 0, sequence=number), 0)


def test_gaps_of_publishers_survive_a_full_queue():
    queue = Queue(max_pending=4, overflow="drop_oldest", full=set())
    queue.extend([message(0)], ORIGIN)
    queue.put_gap(Gap(ORIGIN, 5, 0, "dropped"))
    queue.put_gap(Gap(ORIGIN, 7, 0, "malformed"))
    for number in range(13, 40):
        queue.extend([message(number)], ORIGIN)
    events = [
        ("m", 1, one.sequence) if isinstance(one, Message) else ("g", one.count, one.reason)
        for one in queue.items
    ]
    oracle.check_counted(events, 40)
