"""Handlers of nodes."""

import threading

from contract.promises import promise
from support.waiting import DEADLINE, until


@promise("A handler with concurrency gets the messages of one subject in order.")
def test_concurrency_keeps_the_order_of_each_subject(nodes):
    publisher, subscriber = nodes.join("publisher", "subscriber")
    handled = {f"job.{name}": [] for name in "abcd"}
    subscriber.subscribe("job.*", lambda item: handled[item.subject].append(item.payload), concurrency=4)
    publisher.wait_ready(subscriber="job.a")
    for number in range(50):
        for subject in handled:
            publisher.publish(subject, number)
    publisher.flush()
    until(lambda: all(len(numbers) == 50 for numbers in handled.values()))
    assert all(numbers == list(range(50)) for numbers in handled.values())


@promise("A handler that blocks does not hold up other subscriptions of its node.")
def test_blocked_handler_holds_up_no_other_subscription(nodes):
    publisher, subscriber = nodes.join("publisher", "subscriber")
    go_on, handled = threading.Event(), []
    subscriber.subscribe("slow", lambda message: go_on.wait(DEADLINE))
    subscriber.subscribe("quick", lambda message: handled.append(message.payload))
    publisher.wait_ready(subscriber="quick")
    publisher.wait_ready(subscriber="slow")
    publisher.publish("slow")
    for number in range(50):
        publisher.publish("quick", number)
    publisher.flush()
    until(lambda: len(handled) == 50)
    go_on.set()
    assert handled == list(range(50))


@promise("The queue of a handler is bounded: messages beyond max_pending are dropped and counted.")
def test_queue_of_a_handler_is_bounded(nodes):
    publisher, subscriber = nodes.join("publisher", "subscriber")
    go_on, entered, handled = threading.Event(), threading.Event(), []

    def handle(message):
        entered.set()
        go_on.wait(DEADLINE)
        handled.append(message.payload)

    made = subscriber.subscribe("tick", handle, overflow="drop_newest", delivery={"max_pending": 10})
    publisher.wait_ready(subscriber="tick")
    publisher.publish("tick", 0)
    assert entered.wait(DEADLINE)
    for number in range(1, 101):
        publisher.publish("tick", number)
    publisher.flush()
    until(lambda: made.dropped + made.pending >= 100)
    go_on.set()
    until(lambda: len(handled) + made.dropped == 101)
    assert handled == list(range(len(handled)))
