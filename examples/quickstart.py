"""Publish and subscribe in one program: four messages go out, the two in the east come in."""

import oz

with (
    oz.Publisher(bind="tcp://127.0.0.1:*") as publisher,
    oz.Subscriber(connect=publisher.endpoint) as subscriber,
):
    subscription = subscriber.subscribe("time.*.east")
    print("pattern  ", subscription.patterns[0].text)
    print("prefixes ", subscription.prefixes)

    # A subscription takes a moment to reach the publisher. What is published before that is lost.
    publisher.wait_for_subscribers(1, timeout=10)
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
        print("that was all")

    # `price.` never left the publisher; `time.us.west` did, and the pattern refused it.
    print("crossed the wire", subscriber.stats.received)
    print("delivered       ", subscriber.stats.delivered)
