"""What threads that ask can reach at most: pyzmq and a lock for each of them, with nothing of oz, beside it.

    python benchmarks/asking_floor.py [--rounds 5] [--count 9600] [--in-flight 32] [NAME ...]

- "handed over": who asks gives its request to one thread, which sends and receives on a DEALER, one message
  each, and wakes who asked. The answers are those of a ROUTER in one thread.
- "sent": who asks sends on a PUSH itself, under a lock, and one thread receives on a PULL.
- "joined": the same, with requests joined in one frame by the last that has an answer and goes on. The frame
  comes back as it is, so that who answers does nothing for each request: no library can.

Each side of `asking` may be named beside them. They run in turn, each round the other way.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import select
import statistics
import threading
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import asking
import zmq

NUMBER = 8
SIZE = NUMBER + len(asking.PAYLOAD)
MOST_JOINED = 8


class Waiting:
    """Those who wait: each has a lock of its thread's, which whoever receives releases."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._numbers = count()
        self._mine = threading.local()
        self._locks: dict[bytes, Any] = {}

    def begin(self) -> tuple[bytes, Any]:
        """Give a number to a request, and what to acquire until it has its answer."""
        lock = getattr(self._mine, "lock", None)
        if lock is None:
            lock = self._mine.lock = allocate_lock()
            lock.acquire()
        number = next(self._numbers).to_bytes(NUMBER, "big")
        self._locks[number] = lock
        return number, lock

    def answer(self, number: bytes) -> None:
        """Wake who has asked."""
        self._locks.pop(number).release()


def _serve(pipe: Connection, turn: Callable[[], object]) -> None:
    threading.Thread(target=asking.report, args=(pipe,), daemon=True).start()
    pipe.send("ready")
    while True:
        turn()


def answer_by_router(pipe: Connection, place: str) -> None:
    """Send each message back to whom it came from."""
    router = zmq.Context().socket(zmq.ROUTER)
    router.bind(f"ipc://{place}/there")
    _serve(pipe, lambda: router.send_multipart(router.recv_multipart()))


def answer_by_push(pipe: Connection, place: str) -> None:
    """Send each frame on."""
    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.bind(f"ipc://{place}/there")
    push.connect(f"ipc://{place}/back")
    _serve(pipe, lambda: push.send(pull.recv()))


def ask_handed_over(pipe: Connection, place: str, number: int, in_flight: int) -> None:
    """Hand requests to the one thread that has the socket."""
    dealer = zmq.Context().socket(zmq.DEALER)
    dealer.connect(f"ipc://{place}/there")
    waiting, requests = Waiting(), deque[bytes]()
    bell = os.eventfd(0, os.EFD_NONBLOCK)
    is_rung = threading.Event()

    def work() -> None:
        poll = select.poll()
        for one in (dealer.fileno(), bell):
            poll.register(one, select.POLLIN)
        while True:
            is_busy = False
            while requests:
                dealer.send(requests.popleft(), zmq.NOBLOCK)
                is_busy = True
            while int(dealer.get(zmq.EVENTS)) & zmq.POLLIN:
                waiting.answer(dealer.recv(zmq.NOBLOCK)[:NUMBER])
                is_busy = True
            if not is_busy and (bell, select.POLLIN) in poll.poll():
                os.eventfd_read(bell)
                is_rung.clear()

    def ask() -> None:
        name, lock = waiting.begin()
        requests.append(name + asking.PAYLOAD)
        if not is_rung.is_set():
            is_rung.set()
            os.eventfd_write(bell, 1)
        lock.acquire()

    threading.Thread(target=work, daemon=True).start()
    asking.measure_threads(pipe, ask, number, in_flight)
    os._exit(0)


def ask_sent(pipe: Connection, place: str, number: int, in_flight: int, most: int = 1) -> None:
    """Send requests in the thread that asks; join up to so many."""
    context = zmq.Context()
    push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    pull.bind(f"ipc://{place}/back")
    push.connect(f"ipc://{place}/there")
    waiting, guard = Waiting(), threading.Lock()
    joined: list[bytes] = []
    answered: set[bytes] = set()

    def receive() -> None:
        while True:
            frame = pull.recv()
            names = [frame[at : at + NUMBER] for at in range(0, len(frame), SIZE)]
            answered.update(names)
            for name in names:
                waiting.answer(name)

    def go() -> None:
        with guard:
            taken = joined[:]
            del joined[: len(taken)]
            if taken:
                push.send(b"".join(taken))

    def ask() -> None:
        name, lock = waiting.begin()
        joined.append(name + asking.PAYLOAD)
        if not answered or len(joined) >= most:
            go()
        lock.acquire()
        answered.discard(name)
        if not answered:
            go()

    threading.Thread(target=receive, daemon=True).start()
    asking.measure_threads(pipe, ask, number, in_flight)
    os._exit(0)


def ask_joined(pipe: Connection, place: str, number: int, in_flight: int) -> None:
    """Send requests joined in frames."""
    ask_sent(pipe, place, number, in_flight, MOST_JOINED)


SIDES = asking.SIDES | {
    "handed over": asking.Side(answer_by_router, ask_handed_over),
    "sent": asking.Side(answer_by_push, ask_sent),
    "joined": asking.Side(answer_by_push, ask_joined),
}


def main(arguments: list[str] | None = None) -> None:
    """Measure some sides, and print the rate and the processor time of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", default=["handed over", "sent", "joined", "oz"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=9_600)
    parser.add_argument("--in-flight", type=int, default=32)
    given = parser.parse_args(arguments)
    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(given.rounds):
        for name in given.names[:: -1 if turn % 2 else 1]:
            asked, used = asking.measure(SIDES[name], given.count, given.in_flight)
            found.setdefault(name, []).append((given.count / asked.seconds, 1e6 * used / given.count))
    for name, results in found.items():
        rates, spent = zip(*results, strict=True)
        print(
            f"{name}: {statistics.median(rates):,.0f} a second ({min(rates):,.0f} to {max(rates):,.0f}), "
            f"{statistics.median(spent):.1f} µs of processor each ({min(spent):.1f} to {max(spent):.1f})"
        )


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
