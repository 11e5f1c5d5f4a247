"""Publisher of the tests of subscribers."""

from contextlib import suppress

import oz
from support.waiting import until


class Feed:
    """`oz.Publisher` that waits for its port, and publishes each message as a batch of its own."""

    def __init__(self, endpoint="tcp://127.0.0.1:*", **options):
        def created():
            # libzmq closes the listener of an earlier publisher a moment after its close.
            with suppress(oz.EndpointError):
                return oz.Publisher(endpoint, **options)

        self.publisher = until(created)
        self.endpoint = self.publisher.endpoint

    def publish(self, *subjects, payload=b"x", **fields):
        """Publish each subject as a message of its own batch."""
        for subject in subjects:
            self.publisher.publish(subject, payload, **fields)
            self.publisher.flush()

    def publish_numbers(self, subject, numbers, batch=1):
        """Publish numbers as payloads, `batch` of them in each batch."""
        numbers = list(numbers)
        for first in range(0, len(numbers), batch):
            with self.publisher.batch():
                for number in numbers[first : first + batch]:
                    self.publisher.publish(subject, b"%d" % number)

    def wait_for_patterns(self, count=1):
        """Wait until `count` patterns are applied."""
        until(lambda: sum(len(subscriber.patterns) for subscriber in self.publisher.subscribers) >= count)

    def close(self):
        self.publisher.close(timeout=0.5)
