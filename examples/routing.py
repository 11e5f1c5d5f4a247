"""Publishers that filter: only matches cross the wire, a queue group shares work, and each loss is reported."""

from __future__ import annotations

import oz


def main() -> None:
    with oz.Publisher("tcp://127.0.0.1:*") as publisher:
        losses: list[oz.Gap] = []
        # A leading wildcard has no prefix. With plain ZeroMQ every message would cross the wire.
        east = oz.Subscriber(publisher.endpoint, filtering="publisher", on_gap=losses.append)
        east.subscribe("*.*.east")
        workers = [oz.Subscriber(publisher.endpoint, filtering="publisher") for _ in range(2)]
        for worker in workers:
            worker.subscribe("job.>", group="workers")
        for subscriber in (east, *workers):
            subscriber.wait_ready()

        for number in range(1000):
            publisher.publish(f"sensor.{number}.{('west', 'east')[number % 10 == 0]}", b"%d" % number)
        for number in range(10):
            publisher.publish(f"job.{number}.resize", b"", headers={"attempt": 1})
        publisher.flush()

        got = [east.receive(timeout=5) for _ in range(100)]
        print(f"east: {len(got)} of 1,000 matched, {east.stats.received} crossed the wire, lost: {losses}")
        shares = [[worker.receive(timeout=5).subject for _ in range(5)] for worker in workers]
        print(f"workers: 5 and 5 jobs, each job once: {len(set(shares[0] + shares[1])) == 10}")
        for subscriber in (east, *workers):
            subscriber.close()


if __name__ == "__main__":
    main()
