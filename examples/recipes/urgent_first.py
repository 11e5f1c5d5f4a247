"""Priority by subject: an urgent message is handled before normal messages that have waited longer."""

import oz

with oz.Publisher("tcp://127.0.0.1:*") as publisher, oz.Subscriber(publisher.endpoint) as subscriber:
    urgent = subscriber.subscribe("alarm.urgent.>")
    normal = subscriber.subscribe("alarm.normal.>")
    subscriber.wait_ready()

    def next_message() -> oz.Message:
        """Return an urgent message if there is one, else the next normal message."""
        try:
            return urgent.receive(timeout=0)
        except oz.Timeout:
            return normal.receive(timeout=5)

    with publisher.batch():
        for number in range(3):
            publisher.publish(f"alarm.normal.{number}", b"")
        publisher.publish("alarm.urgent.fire", b"")

    handled = [normal.receive(timeout=5).subject]  # While it is handled, the other messages arrive.
    handled += [next_message().subject for _ in range(3)]
    print(*handled)
