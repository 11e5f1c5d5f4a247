"""Receive from a gateway what `publishing.py` sends, until it has closed: `listening.py ENDPOINT`.

Says `ready` and, at the end, what it got and what it was told is lost.
"""

import json
import struct
import sys
import time
import zlib

from oz.errors import Timeout
from oz.subscriber.sync import Subscriber

LONGEST = 120
SETTLES = 1.5


def main(endpoint):
    lost, seen, wrong, double, has_left = [], set(), 0, 0, False
    with Subscriber(endpoint, filtering="publisher", on_gap=lost.append) as sub:
        sub.subscribe(["md.>", "_OZ.gateway.left"])
        sub.wait_ready(timeout=LONGEST)
        print("ready", flush=True)
        ends = time.monotonic() + LONGEST
        while time.monotonic() < ends:
            try:
                message = sub.receive(timeout=SETTLES)
            except Timeout:
                if has_left:
                    break
                continue
            if message.subject == "_OZ.gateway.left":
                has_left = True
                continue
            body, crc = message.payload[:-4], message.payload[-4:]
            (number,) = struct.unpack_from(">Q", body)
            wrong += struct.pack(">I", zlib.crc32(body)) != crc or number != message.headers["oz-sequence"]
            double += number in seen
            seen.add(number)
        stats = sub.stats
    # One without a count says that the publisher was silent for long: the loss, if any, is told behind it,
    # unless it left while it was not heard.
    told = [gap.count for gap in lost]
    counted = {"delivered": len(seen), "lost": stats.lost, "told": sum(one or 0 for one in told)}
    more = {"uncounted": told.count(None), "wrong": wrong, "double": double, "first": min(seen, default=0)}
    print(json.dumps({**counted, **more}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
