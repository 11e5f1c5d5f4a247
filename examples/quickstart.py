"""Publish and subscribe in one program: four messages are published, and two match the pattern."""

import oz

with (
    oz.Publisher(bind="tcp://127.0.0.1:*") as publisher,
    oz.Subscriber(connect=publisher.endpoint) as subscriber,
):
    subscription = subscriber.subscribe("time.*.east")
    pattern = subscription.patterns[0]
    print("pattern  ", pattern.text)
    print("prefixes ", pattern.prefixes)

    # A subscription takes a moment to reach the publisher. Messages published before are not delivered.
    subscriber.wait_ready()
    publisher.publish("time.us.east", b"12:00")
    publisher.publish("time.us.west", b"09:00")
    publisher.publish("time.eu.east", b"18:00")
    publisher.publish("price.us.east", b"101.5")

    for _ in range(2):
        message = subscriber.receive(timeout=10)
        print("delivered", message.subject, message.payload.decode())
    try:
        subscriber.receive(timeout=0.2)
    except oz.Timeout:
        print("no more messages")

    # The publisher filters for subscribers of oz. A plain ZeroMQ subscriber filters by the prefix `time.`.
    print("crossed the wire", subscriber.stats.received)
    print("delivered       ", subscriber.stats.delivered)
