"""Queues of received messages without sockets: overflow, gaps in their place, several receivers."""

import pickle
from collections import deque
from unittest.mock import Mock

import pytest

import oz
from links.pair import MEMBER, ORIGIN, ids
from oz.message import Gap
from oz.subscriber import queue as queues
from oz.subscriber.link import Link, Messages
from oz.subscriber.message import HandledMessage
from oz.subscriber.queue import Dispatcher, Inbox
from oz.subscriber.subscriptions import Subscriptions
from oz.wire.links import StreamOptions


class Receiver:
    """Dispatcher and a link that delivers to it."""

    def __init__(self, **options):
        self.subscriptions = Subscriptions()
        self.dispatcher = Dispatcher(self.subscriptions, **options)
        self.link = Link(MEMBER, self.subscriptions, ids())
        self.link.origin = ORIGIN
        self.sequence = 0
        self.acknowledged = []
        self.abandoned, self.handled = [], []
        self.link.abandon = lambda epoch, stream, sequence: self.abandoned.append(sequence)
        self.link.handled = lambda epoch, stream, sequence: self.handled.append(sequence)

    def subscribe(self, text, handler=None, max_pending=100, overflow=None, own=False, **options):
        stream = StreamOptions(overflow=overflow, handled=options.pop("handled", False))
        inbox = Inbox(handler, is_handled=stream.handled, **options)
        inbox.entries.append(self.subscriptions.add(oz.compile(text), stream, owner=inbox))
        self.dispatcher.add(inbox, max_pending, overflow)
        if own:
            self.dispatcher.own_queue(inbox, max_pending, overflow)
        return inbox

    def deliver(
        self, *subjects, stream=1, gap=0, extras=None, origin=ORIGIN, payload=b"", is_redelivered=False
    ):
        self.link.origin = origin
        flat = [part for subject in subjects for part in (subject.encode(), payload, extras)]
        positions = range(self.sequence, self.sequence + len(subjects))
        effect = Messages(stream, self.sequence, positions, flat, is_redelivered)
        self.sequence += len(subjects)
        self.dispatcher.deliver(self.link, effect, 1, gap, self.acknowledged.append)

    def deliver_plain(self, *batch, delimiter=None):
        def match(subject):
            found = self.subscriptions.match(1, subject, None)
            return tuple(dict.fromkeys(item.owner for item in found))

        return self.dispatcher.deliver_plain([list(frames) for frames in batch], 7, match, delimiter)


@pytest.fixture(params=["compiled", "python"])
def part(request, monkeypatch):
    """Run with the compiled part, and without."""
    if request.param == "python":
        monkeypatch.setattr(queues, "HOT", None)
    elif queues.HOT is None:
        pytest.skip("the compiled part does not run")


def shown(queue):
    return [
        f"{message.reason} {message.count}" if isinstance(message, Gap) else message.subject
        for message in queue.items
    ]


@pytest.mark.parametrize(
    ("overflow", "expected"),
    [
        ("drop_newest", ["a.1", "a.2", "a.3", "full 2"]),
        ("drop_oldest", ["full 2", "a.3", "a.1", "a.4"]),
        ("conflate", ["full 1", "a.2", "a.3", "a.1", "a.4"]),
    ],
)
def test_a_full_queue_drops_and_puts_a_gap_in_place(overflow, expected):
    receiver = Receiver()
    size = 4 if overflow == "conflate" else 3
    inbox = receiver.subscribe("a.*", max_pending=size, overflow=overflow, own=True)
    receiver.deliver("a.1", "a.2", "a.3")
    receiver.deliver("a.1", "a.4")
    messages = [text for text in shown(inbox.queue) if "full" not in text]
    assert len(messages) <= size
    assert shown(inbox.queue) == expected
    assert inbox.queue.dropped == sum(gap.count for gap in inbox.queue.items if isinstance(gap, Gap))
    assert not receiver.dispatcher.is_full


class OutrunItems(deque):
    """Items of a queue. Another thread receives the oldest item when the queue reads or removes items."""

    def receive(self):
        self.received.append(super().popleft())

    def popleft(self):
        self.receive()
        return super().popleft()

    def __iter__(self):
        found = [self[place] for place in range(len(self))]
        self.receive()
        return iter(found)

    def __reversed__(self):
        return reversed(list(self))


@pytest.mark.parametrize(("overflow", "size"), [("drop_oldest", 1), ("conflate", 1), ("conflate", 3)])
def test_a_full_queue_drops_no_message_that_another_thread_receives_meanwhile(overflow, size):
    receiver = Receiver()
    inbox = receiver.subscribe("a.*", max_pending=size, overflow=overflow, own=True)
    subjects = ["a.1", "a.2", "a.1"][:size]
    receiver.deliver(*subjects)
    items = inbox.queue.items = OutrunItems(inbox.queue.items)
    items.received = []
    receiver.deliver("a.1")
    found = [*items.received, *(items[place] for place in range(len(items)))]
    assert [message.subject for message in found] == [*subjects, "a.1"]
    assert inbox.queue.dropped == 0


def test_a_full_queue_joins_gaps_of_publishers():
    receiver = Receiver()
    inbox = receiver.subscribe("a.*", max_pending=1, overflow="drop_newest", own=True)
    for number in range(5):
        receiver.deliver(f"a.{number}")
        receiver.dispatcher.put_gap(Gap(ORIGIN, 3, 0, "dropped"), 1)
        receiver.dispatcher.put_gap(Gap(ORIGIN, 2, 0, "dropped"), 1)
    assert shown(inbox.queue) == ["a.0", "dropped 25", "full 4"]


def test_a_full_queue_is_bounded_with_drops_of_two_publishers():
    receiver = Receiver()
    inbox = receiver.subscribe("a.*", max_pending=1, overflow="drop_newest", own=True)
    for number in range(20):
        receiver.deliver(f"a.{number}", origin=bytes([number % 2]) * 16)
    gaps = [item for item in inbox.queue.items if isinstance(item, Gap)]
    assert sorted((gap.origin[0], gap.count) for gap in gaps) == [(0, 9), (1, 10)]


@pytest.mark.parametrize("overflow", ["drop_oldest", "conflate"])
def test_a_full_queue_keeps_the_gaps_of_publishers(overflow):
    receiver = Receiver()
    inbox = receiver.subscribe("a.*", max_pending=3, overflow=overflow, own=True)
    for count, reason in ((5, "dropped"), (7, "malformed"), (8, "malformed"), (None, "lost")):
        receiver.dispatcher.put_gap(Gap(ORIGIN, count, 0, reason), 1)
    receiver.deliver(*(f"a.{number}" for number in range(6)))
    assert shown(inbox.queue) == ["dropped 5", "malformed 15", "lost None", "full 5", "a.5"]


def test_a_gap_of_a_stream_is_in_the_queue_of_its_only_receiver():
    receiver = Receiver()
    first, second = (
        receiver.subscribe("a.*", own=True),
        receiver.subscribe("b.*", overflow="conflate", own=True),
    )
    receiver.deliver("a.1")
    receiver.dispatcher.put_gap(Gap(ORIGIN, 3, 0, "dropped"), 1)
    receiver.deliver("a.2", gap=3)
    assert shown(first.queue) == ["a.1", "dropped 3", "a.2"]
    assert first.queue.items[-1].gap == 3
    assert (first.dropped, second.dropped) == (3, 0)
    assert not receiver.dispatcher.reports


def test_a_gap_without_a_place_is_reported_at_once():
    receiver = Receiver()
    receiver.subscribe("a.*", own=True)
    receiver.subscribe("b.*")
    receiver.dispatcher.put_gap(Gap(ORIGIN, None, 0, "lost"), None)
    assert list(receiver.dispatcher.reports) == [Gap(ORIGIN, None, 0, "lost")]
    assert receiver.dispatcher.stats.lost == 0


@pytest.mark.usefixtures("part")
@pytest.mark.parametrize("size", [1, 300])
def test_a_batch_for_several_queues_is_sorted(size):
    receiver = Receiver()
    first, second = receiver.subscribe("a.*", own=True), receiver.subscribe("b.*", own=True)
    receiver.subscribe("c.*")
    # Long subjects are not cached.
    names = [f"{letter}.{'x' * size}" for letter in "abcd"]
    receiver.deliver(*names)
    receiver.deliver(*names[:1])
    receiver.deliver(*names[1:2])
    assert shown(first.queue) == [names[0]] * 2
    assert shown(second.queue) == [names[1]] * 2
    assert shown(receiver.dispatcher.shared) == [names[2]]
    stats = receiver.dispatcher.stats
    assert (stats.received, stats.delivered, stats.unwanted) == (6, 5, 1)


@pytest.mark.usefixtures("part")
def test_a_handled_message_of_two_receivers_waits_for_both():
    receiver = Receiver()
    first = receiver.subscribe("a.*", handled=True, own=True)
    second = receiver.subscribe("*.1", handled=True, own=True)
    receiver.deliver("a.1", "a.2")
    both, alone = first.queue.items
    assert isinstance(both, HandledMessage)
    both.ack()
    assert receiver.acknowledged == [both]
    receiver.dispatcher.handled(both)
    receiver.dispatcher.handled(both)
    assert receiver.handled == []
    receiver.dispatcher.handled(alone)
    assert receiver.handled == [1]
    receiver.dispatcher.handled(second.queue.items[0])
    assert receiver.handled == [1, 0]


def test_a_handled_message_that_moves_to_an_own_queue_waits_for_both():
    receiver = Receiver()
    first = receiver.subscribe("a.*", handled=True)
    receiver.subscribe("*.1", handled=True)
    receiver.deliver("a.1")
    own = receiver.dispatcher.own_queue(first, 100, None)
    receiver.dispatcher.handled(own.items[0])
    assert receiver.handled == []
    receiver.dispatcher.handled(receiver.dispatcher.shared.items[0])
    assert receiver.handled == [0]


@pytest.mark.usefixtures("part")
def test_unwanted_messages_of_a_handled_stream_are_abandoned():
    receiver = Receiver()
    inbox = receiver.subscribe("a.*", handled=True, own=True)
    receiver.subscribe("b.*", handled=True)
    receiver.deliver("a.1", "b.1", "c.1")
    assert receiver.abandoned == [2]
    receiver.subscriptions.remove(inbox.entries[0])
    receiver.dispatcher.remove(inbox)
    assert receiver.abandoned == [2, 0]
    receiver.deliver("a.2")
    assert receiver.abandoned == [2, 0, 3]
    assert receiver.dispatcher.stats.unwanted == 2


def test_messages_of_an_interrupted_frame_are_taken_back():
    receiver = Receiver()
    inbox = receiver.subscribe("a.*", own=True)
    receiver.deliver("a.1", "a.2")
    receiver.deliver("a.3", "a.4")
    receiver.dispatcher.remove_from(receiver.link, 2)
    assert shown(inbox.queue) == ["a.1", "a.2"]


@pytest.mark.parametrize("extras", [{"headers": 3}, {"id": "text"}, {"reply_to": 3}, {"id": [b"x"]}])
def test_malformed_extras_become_a_gap(extras):
    receiver = Receiver()
    receiver.subscribe("a.*", handled=True)
    receiver.deliver("a.1", extras=extras)
    receiver.deliver("a.2")
    assert shown(receiver.dispatcher.shared) == ["malformed 1", "a.2"]
    assert receiver.dispatcher.stats.malformed == 1
    assert receiver.abandoned == [0]


def test_ended_inboxes_leave_the_messages_of_others():
    receiver = Receiver()
    first, second = receiver.subscribe("a.*"), receiver.subscribe("*.1")
    receiver.deliver("a.1", "a.2")
    assert (receiver.dispatcher.pending(first), receiver.dispatcher.pending(second)) == (2, 1)
    receiver.dispatcher.remove(first)
    assert shown(receiver.dispatcher.shared) == ["a.1"]
    assert receiver.dispatcher.pending(second) == 1


@pytest.mark.usefixtures("part")
def test_inline_handlers_get_messages_apart_from_queues():
    receiver = Receiver()
    inline = receiver.subscribe("a.*", print, is_inline=True)
    receiver.subscribe("*.1")
    receiver.deliver("a.1", "a.2")
    assert [(inbox, message.subject) for inbox, message in receiver.dispatcher.inline] == [
        (inline, "a.1"),
        (inline, "a.2"),
    ]
    assert shown(receiver.dispatcher.shared) == ["a.1"]
    assert receiver.dispatcher.stats.delivered == 2


def test_repeats_are_dropped_by_id_and_by_source():
    receiver = Receiver(dedupe=True)
    receiver.subscribe("a.*", handled=True)
    forwarded = {"forwarded": [b"o" * 16, 5, b""]}
    for extras in ({"id": b"x"}, {"id": b"x"}, {"id": b"y"}, forwarded, forwarded):
        receiver.deliver("a.1", extras=extras)
    assert [message.sequence for message in receiver.dispatcher.shared.items] == [0, 2, 3]
    assert receiver.dispatcher.stats.repeated == 2
    assert receiver.handled == [1, 4]
    last = receiver.dispatcher.shared.items[-1]
    assert (last.origin, last.position) == (b"o" * 16, 5)
    receiver.deliver("a.1", extras={"id": b"x"}, is_redelivered=True)
    assert receiver.dispatcher.shared.items[-1].redelivered


def test_a_forwarded_message_repeats_only_a_message_with_its_subject():
    receiver = Receiver()
    receiver.subscribe("a.*")
    for subject in ("a.1", "a.2", "a.1"):
        receiver.deliver(subject, extras={"forwarded": [b"o" * 16, 5, b""]})
    assert shown(receiver.dispatcher.shared) == ["a.1", "a.2"]
    assert receiver.dispatcher.stats.repeated == 1


def test_known_ids_are_bounded(monkeypatch):
    monkeypatch.setattr(queues, "MAX_IDS", 2)
    monkeypatch.setattr(queues, "MAX_FORWARDED", 2)
    receiver = Receiver(dedupe=True)
    receiver.subscribe("a.*")
    for name in (b"1", b"2", b"3", b"1"):
        receiver.deliver("a.1", extras={"id": name})
        receiver.deliver("a.2", extras={"forwarded": [name * 16, 0, b""]})
    assert len(receiver.dispatcher.shared.items) == 8


def test_routes_are_bounded(monkeypatch):
    monkeypatch.setattr(queues, "MAX_ROUTES", 2)
    monkeypatch.setattr(queues, "HOT", None)
    receiver = Receiver()
    for text in ("a.*", "*.1", "*.2"):
        receiver.subscribe(text, own=True)
    for subject in ("a.1", "a.2", "b.1", "b.2") * 2:
        receiver.deliver(subject)
        receiver.deliver_plain([subject.encode(), b""])
    assert receiver.dispatcher.stats.delivered == 16
    assert len(receiver.dispatcher.routes_of(1)) <= 2
    assert receiver.dispatcher.routes_of(9) is None


@pytest.mark.usefixtures("part")
@pytest.mark.parametrize("own", [True, False])
def test_plain_messages_are_filtered_and_sorted(own):
    receiver = Receiver()
    first, second = receiver.subscribe("a.*", own=own), receiver.subscribe("b.*", own=own)
    batch = ([b"a.1", b"x"], [b"c.1", b"x"], [b"b.1", b"x", b"more"], [b"a.2"], [b"b.2", b"y"])
    assert receiver.deliver_plain(*batch) == 4
    stats = receiver.dispatcher.stats
    assert (stats.received, stats.filtered, stats.delivered) == (5, 1, 4)
    if own:
        assert (shown(first.queue), shown(second.queue)) == (["a.1", "a.2"], ["b.1", "b.2"])
        items = [*first.queue.items, *second.queue.items]
    else:
        assert shown(receiver.dispatcher.shared) == ["a.1", "b.1", "a.2", "b.2"]
        items = sorted(receiver.dispatcher.shared.items, key=lambda item: item.subject)
    assert [item.frames[1:] for item in items] == [[b"x"], [], [b"x", b"more"], [b"y"]]
    assert {(item.sequence, item.position, item.origin, item.gap) for item in items} == {
        (None, None, None, 0)
    }


def test_direct_messages_need_a_receiver():
    receiver = Receiver()
    effect = Messages(0, 0, range(2), [b"_INBOX.1", b"x", None, b"_INBOX.\xff", b"y", {"h": 1}], False)
    receiver.dispatcher.deliver_direct(receiver.link, effect)
    assert receiver.dispatcher.stats.unwanted == 2
    got = []
    receiver.dispatcher.on_direct = lambda link, found: got.extend(found)
    receiver.dispatcher.deliver_direct(receiver.link, effect)
    assert got == [("_INBOX.1", b"x", None), ("_INBOX.\udcff", b"y", {"h": 1})]
    assert receiver.dispatcher.stats.delivered == 2


def waiting_of_two():
    """Return a dispatcher with messages of two subscriptions in its queue, and the first subscription."""
    receiver = Receiver()
    first = receiver.subscribe("b")
    receiver.subscribe("a.*")
    receiver.deliver("a.0", "b", "a.1", "b", "a.2", "b")
    return receiver.dispatcher, first


def received(dispatcher):
    return [item.subject for item in dispatcher.shared.items if item is not queues.REMOVED]


def test_an_interrupted_removal_keeps_the_order_of_other_messages(monkeypatch):
    dispatcher, first = waiting_of_two()
    monkeypatch.setattr(dispatcher, "abandon", Mock(side_effect=[None, KeyboardInterrupt]))
    with pytest.raises(KeyboardInterrupt):
        dispatcher.remove(first)
    assert [subject for subject in received(dispatcher) if subject != "b"] == ["a.0", "a.1", "a.2"]


@pytest.mark.parametrize("count", [1, 6])
def test_a_removal_while_another_thread_receives_keeps_the_order(monkeypatch, count):
    dispatcher, first = waiting_of_two()
    items, taken = dispatcher.shared.items, []

    def receive(_):
        for _ in range(min(count, len(items))):
            taken.append(items.popleft())

    monkeypatch.setattr(dispatcher, "abandon", receive)
    dispatcher.remove(first)
    found = [item.subject for item in [*taken, *items] if item is not queues.REMOVED]
    assert [subject for subject in found if subject != "b"] == ["a.0", "a.1", "a.2"]


def test_removed_messages_at_the_end_do_not_wait():
    dispatcher, first = waiting_of_two()
    dispatcher.remove(first)
    assert received(dispatcher) == ["a.0", "a.1", "a.2"]
    assert len(dispatcher.shared.items) == 5
    dispatcher.remove(next(iter(dispatcher.inboxes)))
    assert not dispatcher.shared.items


def test_an_own_queue_that_another_thread_outruns_gets_no_received_message(monkeypatch):
    dispatcher, first = waiting_of_two()
    items = dispatcher.shared.items
    snapshot = dispatcher._shared_items

    def receive_first():
        found = snapshot()
        items.popleft(), items.popleft()
        return found

    monkeypatch.setattr(dispatcher, "_shared_items", receive_first)
    assert shown(dispatcher.own_queue(first, 100, None)) == ["b", "b"]
    assert received(dispatcher) == ["a.1", "a.2"]


def test_a_pickled_message_keeps_its_fields():
    receiver = Receiver()
    inbox = receiver.subscribe("a.*")
    inbox.handle = "the subscription"
    receiver.deliver("a.1", "a.2", gap=3, extras={"headers": {"h": 1}, "reply_to": "r"}, payload=b"x")
    first, second = receiver.dispatcher.shared.items
    assert (first.subscriptions, first.time_ns, first.gap, second.gap) == (("the subscription",), 1, 3, 0)
    with pytest.raises(oz.ReplyError):
        first.reply(b"")
    inbox.replier = lambda *given: given
    assert first.reply(b"y", headers={"n": 1}) == (first, b"y", {"n": 1})
    copy = pickle.loads(pickle.dumps(second))
    fields = ("subject", "payload", "sequence", "position", "gap", "origin", "headers", "reply_to", "time_ns")
    assert [getattr(copy, name) for name in fields] == [getattr(second, name) for name in fields]
    assert copy.subscriptions == ()
    assert copy != second
