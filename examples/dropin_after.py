"""A reader of weather and market data, written for pyzmq.

`dropin_before.py` and `dropin_after.py` are one program: they differ in an import and in the line that makes
the reader's socket. Plain ZeroMQ reads the two patterns as literal text.
"""

import threading

import zmq

import oz

PREFIX = b"weather.oslo."
PATTERNS = ["weather.*.wind", "market.>"]
READINGS = {
    "weather.oslo.temp": b"-4 C",
    "weather.oslo.wind": b"3 m/s",
    "weather.bergen.temp": b"5 C",
    "weather.bergen.wind": b"11 m/s",
    "market.fish.cod": b"52.10",
    "news.oslo": b"snow",
}


def publish(pub: zmq.Socket, stop: threading.Event) -> None:
    while not stop.wait(0.02):
        for topic, reading in READINGS.items():
            pub.send_multipart([topic.encode(), reading])


context = zmq.Context()
pub = context.socket(zmq.PUB)
port = pub.bind_to_random_port("tcp://127.0.0.1")
stop = threading.Event()
station = threading.Thread(target=publish, args=(pub, stop))
station.start()

sub = context.socket(zmq.SUB, socket_class=oz.SubSocket, dialect="nats")
sub.setsockopt(zmq.RCVTIMEO, 3000)
sub.subscribe(PREFIX)
for pattern in PATTERNS:
    sub.subscribe(pattern)
sub.connect(f"tcp://127.0.0.1:{port}")

# Forty messages are several rounds, so each topic that is delivered is among them.
seen = {}
for _ in range(40):
    if sub.poll(3000):
        topic, reading = sub.recv_multipart()
        seen[topic.decode()] = reading.decode()

stop.set()
station.join()
for topic in sorted(seen):
    print(f"{topic:<20} {seen[topic]}")
print(f"{len(seen)} of {len(READINGS)} topics")
sub.close()
pub.close(linger=0)
context.term()
