"""Receive what `publishing.py` sends: `subscribing.py '{"endpoint": …}'`.

Writes `ready`, and reads lines with the numbers of messages of the publishers. At the end it writes the counts by
publisher: messages that were delivered, reported lost, wrong or double, and the number of the first message.
"""

import json
import struct
import sys
import threading
import time
import zlib
from collections import Counter

from oz.errors import Timeout
from oz.options import Multicast, Options
from oz.subscriber.sync import Subscriber
from support.inside import engine_of

SETTLES = 0.3
NAP = 0.002


class Tally:
    def __init__(self):
        self.delivered, self.lost, self.wrong, self.double = Counter(), Counter(), Counter(), Counter()
        self.first, self.names, self.seen = {}, {}, set()
        self.unknown = self.told = 0

    def take(self, message):
        origin, name = message.origin, message.subject.split(".")[1]
        self.names[origin] = name
        self.first[origin] = min(self.first.get(origin, message.sequence), message.sequence)
        body, crc = message.payload[:-4], message.payload[-4:]
        (number,) = struct.unpack_from(">Q", body)
        if struct.pack(">I", zlib.crc32(body)) != crc or number != message.sequence:
            self.wrong[origin] += 1
        if (origin, number) in self.seen:
            self.double[origin] += 1
        self.seen.add((origin, number))
        self.delivered[origin] += 1

    def on_loss(self, loss):
        """Count a loss. A `Gap` has no sequence, so that this method reads the internal loss."""
        if loss.count is None:
            self.unknown += 1
            return
        self.lost[loss.origin] += loss.count
        self.first[loss.origin] = min(self.first.get(loss.origin, loss.sequence), loss.sequence)

    def on_gap(self, gap):
        self.told += gap.count or 0

    def accounts_for(self, sent, senders):
        """Return whether each message is delivered or reported lost, and no publisher may have begun earlier."""
        by_name = {self.names.get(origin): self.accounted(origin) for origin in self.first}
        is_judged = all(sender.first is None for sender in senders.values())
        return is_judged and all(by_name.get(item["name"], 0) >= item["sent"] for item in sent)

    def accounted(self, origin):
        return self.first[origin] + self.delivered[origin] + self.lost[origin]

    def rows(self):
        return [
            {
                "name": self.names.get(origin, "?"),
                "first": self.first[origin],
                "delivered": self.delivered[origin],
                "lost": self.lost[origin],
                "wrong": self.wrong[origin],
                "double": self.double[origin],
            }
            for origin in self.first
        ]


def listen(expected):
    for line in sys.stdin:
        expected.append(json.loads(line))


def main(endpoint, deadline=150, pattern="md.>", naps=False, **options):
    """Receive and report.

    Args:
        endpoint: the endpoint.
        deadline: seconds after which the program ends in any case.
        pattern: the pattern of its subscription.
        naps: whether it pauses after every 50 messages, and ends at a gap without a count.
        options: options of `Multicast`.
    """
    tally, expected = Tally(), []
    threading.Thread(target=listen, args=(expected,), daemon=True).start()
    started = time.monotonic()

    multicast = Options(multicast=Multicast(**options))
    with Subscriber(endpoint, on_gap=tally.on_gap, options=multicast) as sub:
        source = engine_of(sub).places[endpoint].multicast
        listener, report = source.listener, source._report
        source._report = lambda loss: (tally.on_loss(loss), report(loss))
        sub.subscribe(pattern)
        senders = listener.receiver.senders
        print("ready", flush=True)
        while time.monotonic() < started + deadline:
            try:
                tally.take(sub.receive(timeout=SETTLES))
                if naps and not sub.stats.delivered % 50:
                    time.sleep(NAP)
            except Timeout:
                if expected and (tally.accounts_for(expected[-1], senders) or (naps and tally.unknown)):
                    break
        stats = sub.stats
        assert tally.told == stats.lost, (tally.told, stats)
    counts = {name: getattr(stats, name) for name in ("received", "delivered", "lost", "malformed")}
    said = {
        "publishers": tally.rows(),
        "unknown": tally.unknown,
        "reconnects": listener.reconnects,
    }
    print(json.dumps({**said, **counts}), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
