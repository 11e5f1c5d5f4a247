"""Replay what record_flights.py recorded, ten times as fast, into a dashboard: dashboard.py DIRECTORY."""

import sys
import threading
import time
from collections import Counter

import oz
from oz.journal import Journal, replay

SPEED = 10


def play(journal: Journal, publisher: oz.Publisher) -> None:
    publisher.wait_for_subscribers(timeout=10)
    replay(journal, publisher, "flight.>", speed=SPEED)
    publisher.publish("dashboard.end")
    publisher.flush()


def main(directory: str) -> None:
    flights: Counter[str] = Counter()
    times: list[int] = []
    began = time.monotonic()
    with (
        oz.Publisher("tcp://127.0.0.1:*", on_full="block") as publisher,
        oz.Subscriber(publisher.endpoint, filtering="publisher") as subscriber,
    ):
        subscriber.subscribe(["flight.>", "dashboard.end"])
        playing = threading.Thread(target=play, args=(Journal(directory), publisher))
        playing.start()
        for message in subscriber:
            if message.subject == "dashboard.end":
                break
            flights[message.subject.split(".")[1]] += 1
            times.append(message.headers["oz-time-ns"])
            if len(times) % 200 == 0:
                print("  ".join(f"{airport} {count:4}" for airport, count in sorted(flights.items())))
        playing.join()
    recorded, took = (times[-1] - times[0]) / 1e9, time.monotonic() - began
    print(f"{len(times)} flights, recorded in {recorded:.1f} s, replayed in {took:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
