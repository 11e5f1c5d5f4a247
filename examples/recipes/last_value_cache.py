"""A subscriber that joins late begins with the newest value of each subject, and then follows the feed."""

import oz

with oz.Publisher("tcp://127.0.0.1:*", codec="msgpack", last_value=True) as publisher:
    publisher.publish("price.eurusd", 1.08)
    publisher.publish("price.eurusd", 1.09)
    publisher.publish("price.gbpusd", 1.27)

    with oz.Subscriber(publisher.endpoint, codec="msgpack") as late:
        late.subscribe("price.*", last_value=True)
        known = {}
        while len(known) < 2:
            message = late.receive(timeout=5)
            known[message.subject] = message.payload
        print("joined with", known["price.eurusd"], known["price.gbpusd"])

        publisher.publish("price.eurusd", 1.10)
        print("then", late.receive(timeout=5).payload)
