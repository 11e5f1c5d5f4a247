"""Publish numbered messages whose payload can be checked: `publishing.py '{"endpoint": …}'`.

Says `ready`, waits for a line, publishes and says what it did; waits for a line once more, and closes.
"""

import json
import random
import struct
import sys
import time
import zlib

import oz


def payload(number, size):
    body = struct.pack(">Q", number) + random.Random(number).randbytes(size)
    return body + struct.pack(">I", zlib.crc32(body))


def main(endpoint, count, pace, name="p", size=300, largest=0, on_full="drop", closing=0.0, **options):
    publisher = oz.Publisher(endpoint, multicast=oz.Multicast(**options), on_full=on_full)
    with publisher:
        print("ready", flush=True)
        sys.stdin.readline()
        started = time.monotonic()
        for number in range(count):
            due = started + number * pace - time.monotonic()
            if due > 0:
                time.sleep(due)
            big = largest and number % 100 == 99
            publisher.publish(f"md.{name}.{number % 7}", payload(number, largest if big else size))
        stats = publisher.stats
        print(json.dumps({"name": name, "sent": stats.sent, "missed": stats.missed}), flush=True)
        sys.stdin.readline()
        publisher.close(timeout=closing)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
