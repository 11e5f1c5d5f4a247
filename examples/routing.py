"""Publishers that filter: only matches cross the wire, a queue group shares work, and no loss is silent."""

from __future__ import annotations

import oz


def main() -> None:
    with oz.Publisher("tcp://127.0.0.1:*") as publisher:
        losses: list[oz.Gap] = []
        # A leading wildcard has no prefix. With plain ZeroMQ everything would cross the wire.
        east = oz.Subscriber(publisher.endpoint, filtering="publisher", on_gap=losses.append)
        east.subscribe("*.*.east")
        workers = [oz.Subscriber(publisher.endpoint, filtering="publisher") for _ in range(2)]
        for worker in workers:
            worker.subscribe("job.>", group="workers")
            # One after the other, so that the first in the list has the first turn.
            worker.wait_ready(timeout=5)
        east.wait_ready(timeout=5)

        for number in range(1000):
            publisher.publish(f"sensor.{number}.{('west', 'east')[number % 10 == 0]}", b"%d" % number)
        for number in range(10):
            publisher.publish(f"job.{number}.resize", b"", headers={"attempt": 1})
        publisher.flush()

        got = [east.receive(timeout=5) for _ in range(100)]
        print(f"east: {len(got)} of 1,000 matched, {east.stats.received} crossed the wire, lost: {losses}")
        for name, worker in zip("AB", workers, strict=True):
            jobs = [worker.receive(timeout=5).subject for _ in range(5)]
            print(f"worker {name}: {', '.join(jobs)}")
        for subscriber in (east, *workers):
            subscriber.close()


if __name__ == "__main__":
    main()
