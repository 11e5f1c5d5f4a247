"""A ticker over multicast: one publisher, two receivers, each in a process of its own."""

import subprocess
import sys
import time

import oz

GROUP = "239.192.14.7:5875"
LOOPBACK = "127.0.0.1"
OPTIONS = oz.Options(multicast=oz.Multicast(rate_kbps=1_000, recovery=10))  # equal on both sides
COUNT = 200
SILENCE = 3  # seconds
RECEIVERS = {"trades": "trade.>", "quotes": "quote.*.EUR"}


def publish(interface: str) -> None:
    with oz.Publisher(f"epgm://{interface};{GROUP}", options=OPTIONS) as publisher:
        for number in range(COUNT):
            publisher.publish("trade.xetra.SAP", f"{number} {128 + number % 7}".encode())
            publisher.publish("quote.ecb.EUR", f"{number} {1.08 + number % 5 / 100:.2f}".encode())
            publisher.publish("quote.ecb.USD", b"nobody keeps it")
            time.sleep(0.005)


def receive(name: str, pattern: str, interface: str) -> None:
    got = 0
    with oz.Subscriber(f"epgm://{interface};{GROUP}", options=OPTIONS) as subscriber:
        subscriber.subscribe(pattern)
        print("listening", file=sys.stderr, flush=True)
        try:
            while True:
                # The publisher is a program that may start late. Silence after its messages is its end.
                subscriber.receive(timeout=SILENCE if got else 30)
                got += 1
        except oz.Timeout:
            pass
        # With its end of line, or two receivers that write at once share a line.
        print(f"{name} got {got} of {COUNT} {name}, lost {subscriber.stats.lost}\n", end="", flush=True)


def main() -> None:
    command = [sys.executable, __file__]
    receivers = [
        subprocess.Popen([*command, "receive", name, pattern, LOOPBACK], stderr=subprocess.PIPE, text=True)
        for name, pattern in RECEIVERS.items()
    ]
    try:
        for receiver in receivers:
            said = receiver.stderr.readline()
            if "listening" not in said:
                sys.exit(said.strip())
        subprocess.run([*command, "publish", LOOPBACK], check=True)
        for receiver in receivers:
            receiver.wait(30)
    finally:
        for receiver in receivers:
            receiver.kill()
            receiver.communicate()


if __name__ == "__main__":
    try:
        {"publish": publish, "receive": receive}[sys.argv[1]](*sys.argv[2:]) if sys.argv[1:] else main()
    except oz.EndpointError as error:
        sys.exit(str(error))
