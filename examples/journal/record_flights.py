"""Record the flights of one day: record_flights.py DIRECTORY."""

import sys
import threading
import time

import msgpack

import oz
from oz.demo import flights
from oz.journal import Journal, Recorder

DAY = 1
SECONDS = 2.0  # the day's flights are published in this time


def publish(publisher: oz.Publisher) -> int:
    of_the_day = [(subject, flight) for subject, flight in flights.load() if flight["day"] == DAY]
    for subject, flight in of_the_day:
        publisher.publish(subject, msgpack.packb(flight), headers={"tail": flight["tailnum"]})
        time.sleep(SECONDS / len(of_the_day))
    publisher.flush()
    return len(of_the_day)


def main(directory: str) -> None:
    with (
        oz.Publisher("tcp://127.0.0.1:*", on_full="block") as publisher,
        Recorder(directory, "flight.>", source=publisher.endpoint) as recorder,
    ):
        recording = threading.Thread(target=recorder.run)
        recording.start()
        publisher.wait_for_subscribers(timeout=10)
        published = publish(publisher)
        recorder.stop()  # messages that were published before are still recorded
        recording.join()
        stats = recorder.stats
    print(f"published {published}, recorded {stats.recorded}, lost {stats.lost}")
    first = next(Journal(directory).read("flight.JFK.*.B6"))
    print(f"the first of B6 from JFK: {first.subject}, to {msgpack.unpackb(first.payload)['dest']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
