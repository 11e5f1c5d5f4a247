"""Publishing on links beside a plain ZeroMQ loop, in one run.

    python benchmarks/links.py [--messages 400000] [--rounds 3] [--subscribers 1]

The subscriber of each side is a process of its own that counts messages: the pure link over a raw ROUTER, or a
SUB. Both sides alternate. A line shows messages per second until the last one has arrived, and the processor
time of the publisher for each message.
"""

import argparse
import multiprocessing
import os
import sys
import time
from pathlib import Path

import zmq

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import oz

PAYLOAD = b"x" * 64
PROCESSES: list[multiprocessing.process.BaseProcess] = []
SUBJECTS = [f"time.{number}.east" for number in range(100)]


def count_links(endpoint, count, ready, done):
    from publisher.scripted import Peer

    peer = Peer(endpoint, "time.*.east")
    peer.ready()
    ready.release()
    target = 0
    while True:
        target += count
        while peer.link.delivered < target and peer.link.state != "ended":
            peer.turn()
        peer.messages.clear()
        peer.positions.clear()
        if peer.link.delivered < target:
            return
        done.release()


def count_plain(endpoint, count, ready, done):
    socket = zmq.Context().socket(zmq.SUB)
    socket.set(zmq.RCVHWM, 0)
    socket.connect(endpoint)
    socket.subscribe(b"time.")
    socket.recv_multipart()
    ready.release()
    while True:
        got = 0
        while got < count:
            got += socket.recv_multipart()[0] != b"time.wait"
        done.release()


def start(target, endpoint, count, subscribers):
    fork = multiprocessing.get_context("spawn")
    ready, done = fork.Semaphore(0), fork.Semaphore(0)
    for _ in range(subscribers):
        process = fork.Process(target=target, args=(endpoint, count, ready, done), daemon=True)
        process.start()
        PROCESSES.append(process)
    return ready, done


def timed(publish, finish, done, count, subscribers):
    began, worked = time.perf_counter(), time.process_time()
    for number in range(count):
        publish(SUBJECTS[number % 100])
    finish()
    published, spent = time.perf_counter() - began, time.process_time() - worked
    for _ in range(subscribers):
        done.acquire()
    return count / (time.perf_counter() - began), count / published, spent / count * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--subscribers", type=int, default=1)
    parser.add_argument(
        "--unmatched", type=int, default=0, help="messages that nobody wants, for each matching one"
    )
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    count, subscribers = arguments.messages, arguments.subscribers
    publisher = oz.Publisher("tcp://127.0.0.1:*", on_full="block")
    ready, done = start(count_links, publisher.link_endpoints[0], count, subscribers)
    for _ in range(subscribers):
        ready.acquire()
    pub = zmq.Context().socket(zmq.PUB)
    pub.set(zmq.SNDHWM, 0)
    pub.bind("tcp://127.0.0.1:*")
    plain_ready, plain_done = start(count_plain, pub.get(zmq.LAST_ENDPOINT).decode(), count, subscribers)
    waiting = subscribers
    while waiting:
        pub.send_multipart([b"time.wait", b""])
        waiting -= plain_ready.acquire(timeout=0.01)

    def publish(subject):
        publisher.publish(subject, PAYLOAD)
        for _ in range(arguments.unmatched):
            publisher.publish("unwanted.subject", PAYLOAD)

    def send(subject):
        pub.send_multipart([subject.encode(), PAYLOAD])
        for _ in range(arguments.unmatched):
            pub.send_multipart([b"unwanted.subject", PAYLOAD])

    for _ in range(arguments.rounds):
        for name, call, finish, end in (
            ("links", publish, publisher.flush, done),
            ("plain", send, lambda: None, plain_done),
        ):
            if arguments.profile and name == "links":
                import cProfile

                profile = cProfile.Profile()
                profile.enable()
                timed(call, finish, end, count, subscribers)
                profile.disable()
                profile.print_stats("tottime")
                continue
            arrived, published, spent = timed(call, finish, end, count, subscribers)
            print(
                f"{name}  {arrived:12,.0f}/s arrived  {published:12,.0f}/s published  {spent:6.2f} µs/message"
            )
    left = publisher.close(timeout=1)
    for process in PROCESSES:
        process.terminate()
    os._exit(left > 0)


if __name__ == "__main__":
    main()
