"""The same traffic through patterns of six dialects, side by side."""

import oz

SUBJECTS = ["foo.bar", "foo.bar.zoo", "foo1.bar", "foo", "fo.bar", "foo*.bar"]
PATTERNS = [
    ("nats", "foo.*"),
    ("nats", "foo*.>"),
    ("rv", "foo.>"),
    ("kubemq", "foo*.>"),
    ("redis", "foo*"),
    ("redis", "fo?.bar"),
    ("raims.glob", "fo?.bar"),
    ("regex", r"^foo\.(bar|baz)(\..*)?$"),
    ("zmq", "foo"),
]

print(f"{'dialect':<11} {'pattern':<24} {'prefixes':<24} delivered")
# Rai MS and Redis allow any bytes in a subject. The dialect of the publisher decides which subjects are valid.
with oz.Publisher(bind="tcp://127.0.0.1:*", dialect="redis") as publisher:
    subscribers = []
    for dialect, text in PATTERNS:
        subscriber = oz.Subscriber(connect=publisher.endpoint)
        pattern = oz.compile(text, dialect)
        subscriber.subscribe(pattern)
        subscriber.subscribe("end")
        subscribers.append((pattern, subscriber))
    publisher.wait_for_subscribers("end", count=len(PATTERNS))

    publisher.publish_many([(subject, b"") for subject in SUBJECTS] + [("end", b"")])

    for pattern, subscriber in subscribers:
        delivered = []
        while (message := subscriber.receive(timeout=10)).subject != "end":
            delivered.append(message.subject)
        prefixes = ", ".join(prefix.decode() for prefix in pattern.prefixes)
        print(f"{pattern.dialect:<11} {pattern.text:<24} {prefixes:<24} {'  '.join(delivered)}")
        subscriber.close()
