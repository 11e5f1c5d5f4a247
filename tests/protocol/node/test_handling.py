"""Who handles what, decided without a thread or a loop."""

from types import SimpleNamespace

from oz.protocol.messages import Message
from oz.protocol.node.handler_queue import HandlerQueue, Handling, Workers
from support.cases import each


class Asking(Message):
    """A request."""

    reply_to = "_INBOX.1"


def message(kind=Message):
    return kind("a", b"", [], None, 0)


def handling(concurrency=1, size=2):
    queue, workers = HandlerQueue(concurrency=concurrency), Workers(size, 10)
    return Handling(queue, workers), queue, workers


def test_a_pool_starts_no_more_workers_than_its_size_and_one_for_each_that_is_lent():
    workers = Workers(1, 10)
    assert workers.has_room
    workers.members.add("first")
    assert not workers.has_room
    workers.lent += 1
    assert workers.has_room
    workers.members.add("second")
    assert (workers.has_room, workers.has_too_many) == (False, False)
    workers.lent -= 1
    assert workers.has_too_many
    # One that was asked to end makes room for nobody twice.
    workers.ending += 1
    assert (workers.has_room, workers.has_too_many) == (False, False)


def test_a_closed_pool_starts_nobody():
    workers = Workers(1, 10)
    workers.is_closed = True
    assert not workers.has_room


def test_a_partition_that_is_left_with_messages_stands_in_line_again():
    handled, queue, _ = handling()
    partition, _ = queue.put(message())
    queue.put(message())
    assert handled.begin("worker", partition)
    assert not handled.is_idle
    partition.pop()
    assert handled.end("worker", partition, is_empty=False)
    # Nobody else is to work it off meanwhile.
    assert queue.put(message()) == (None, 0)


@each("is_closed", [True, False])
def test_a_partition_whose_worker_ends_waits_for_the_next_message(is_closed):
    handled, queue, workers = handling()
    partition, _ = queue.put(message())
    handled.begin("worker", partition)
    workers.is_closed = is_closed
    assert not handled.end("worker", partition, is_empty=False, is_ended=not is_closed)
    assert queue.put(message()) == (partition, 0)


def test_nothing_begins_once_the_pool_is_closed():
    handled, queue, workers = handling()
    partition, _ = queue.put(message())
    workers.is_closed = True
    assert not handled.begin("worker", partition)
    assert len(queue) == 1
    assert handled.is_done("anybody")


def test_who_waits_for_a_subscription_waits_for_its_handlers_but_not_for_those_that_wait_so_too():
    handled, queue, workers = handling(concurrency=2)
    partition, _ = queue.put(message())
    workers.members |= {"first", "second"}
    handled.begin("first", partition)
    partition.pop()
    assert not handled.is_done("second")
    workers.still |= {"first", "second"}
    assert handled.is_done("second")
    assert not handled.is_done("no worker")


def test_that_an_answer_was_given_back_and_not_sent_is_told_once():
    handled, queue, _ = handling()
    partition = queue.partitions[0]
    assert not handled.is_answer_lost(partition, message())
    assert not handled.is_answer_lost(partition, SimpleNamespace(reply_to="_INBOX.1"))
    partition.answered = answered = message(Asking)
    assert not handled.is_answer_lost(partition, answered)
    assert handled.is_answer_lost(partition, message(Asking))
    assert not handled.is_answer_lost(partition, message(Asking))
