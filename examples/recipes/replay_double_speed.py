"""Replay a journal at double speed: two seconds of messages take one second."""

import tempfile
import time

import oz
from oz.journal import Journal, Writer, replay

with tempfile.TemporaryDirectory() as directory:
    with Writer(directory) as writer:
        start = time.time_ns()
        writer.append(
            [
                {"subject": f"md.{number}", "payload": b"", "time_ns": start + number * 500_000_000}
                for number in range(5)
            ]
        )

    with oz.Publisher("tcp://127.0.0.1:*") as publisher, oz.Subscriber(publisher.endpoint) as subscriber:
        subscriber.subscribe("md.>")
        subscriber.wait_ready()
        began = time.monotonic()
        replay(Journal(directory), publisher, "md.>", speed=2)
        print("subjects:", [subscriber.receive(timeout=5).subject for _ in range(5)])
        print("took at least a second:", time.monotonic() - began >= 1)
