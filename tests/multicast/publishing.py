"""Publish numbered messages whose payload can be checked: `publishing.py '{"endpoint": …}'`.

Writes `ready`, waits for a line, publishes, writes its counts, waits for a line and closes. With `goes_on` it
publishes until another line comes, and at least `count` messages.
"""

import json
import random
import select
import struct
import sys
import time
import zlib

from oz.options import Multicast, Options
from oz.publisher.sync import Publisher


def payload(number):
    body = struct.pack(">Q", number) + random.Random(number).randbytes(300)
    return body + struct.pack(">I", zlib.crc32(body))


def numbers(count, goes_on):
    number = 0
    while number < count or (goes_on and not select.select([sys.stdin], [], [], 0)[0]):
        yield number
        number += 1
    if goes_on:
        sys.stdin.readline()


def main(
    endpoint,
    count,
    pace,
    name="p",
    on_full="drop",
    closing=0.0,
    goes_on=False,
    **options,
):
    publisher = Publisher(endpoint, options=Options(multicast=Multicast(**options)), on_full=on_full)
    with publisher:
        print("ready", flush=True)
        sys.stdin.readline()
        started = time.monotonic()
        for number in numbers(count, goes_on):
            due = started + number * pace - time.monotonic()
            if due > 0:
                time.sleep(due)
            publisher.publish(f"md.{name}.{number % 7}", payload(number))
        print(json.dumps({"name": name, "sent": publisher.stats.sent}), flush=True)
        sys.stdin.readline()
        publisher.close(timeout=closing)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
