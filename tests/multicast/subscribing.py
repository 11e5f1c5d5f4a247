"""Receive what `publishing.py` sends: `subscribing.py '{"endpoint": …}'`.

Says `ready`, and reads lines that say what publishers have sent. When all that is accounted for, or it has
waited for too long, it says what it got by publisher: what was delivered, reported lost, wrong or double, and
the number of the first message that is accounted for.
"""

import json
import struct
import sys
import threading
import time
import zlib
from collections import Counter
from contextlib import ExitStack

from multicast.keeping import Keeping
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
        self.advisories, self.gaps, self.unknown, self.told = [], [], 0, 0

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
        """Count a loss. A gap has no number of its first message, so that this is called before `on_gap`."""
        if loss.count is None:
            self.unknown += 1
            return
        self.gaps.append((loss.sequence, loss.count))
        self.lost[loss.origin] += loss.count
        self.first[loss.origin] = min(self.first.get(loss.origin, loss.sequence), loss.sequence)

    def on_gap(self, gap):
        self.told += gap.count or 0

    def accounts_for(self, sent, senders):
        """Tell whether all that was sent is accounted for, and it is judged what came before that."""
        by_name = {self.names.get(origin): self.accounted(origin) for origin in self.first}
        is_judged = all(one.first is None for one in senders.values())
        return is_judged and all(by_name.get(one["name"], 0) >= one["sent"] for one in sent)

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


def main(endpoint, deadline=150, pattern="md.>", naps=False, keeps=False, **options):
    """Listen.

    Args:
        endpoint: where.
        deadline: seconds after which it ends in any case.
        pattern: what it subscribes to.
        naps: whether it rests for a moment after every 50 messages, and ends when it is told that messages
            may be missing which nobody counts.
        keeps: whether it says what the receiver got that it began with, which goes on when it is given up.
        options: of `Multicast`.
    """
    tally, expected = Tally(), []
    threading.Thread(target=listen, args=(expected,), daemon=True).start()
    started = time.monotonic()

    def on_notice(notice):
        tally.advisories.append((notice.kind, round(time.monotonic() - started, 2)))

    with ExitStack() as stack:
        keeping = stack.enter_context(Keeping()) if keeps else None
        sub = Subscriber(endpoint, on_gap=tally.on_gap, options=Options(multicast=Multicast(**options)))
        stack.enter_context(sub)
        source = engine_of(sub).places[endpoint].multicast
        listener, report = source.listener, source._report
        listener._on_notice = on_notice
        source._report = lambda loss: (tally.on_loss(loss), report(loss))
        if keeping:
            stack.callback(keeping.close)
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
        first = keeping.first(expected[-1]) if keeping else None
    counts = {name: getattr(stats, name) for name in ("received", "delivered", "lost", "malformed")}
    said = {
        "publishers": tally.rows(),
        "advisories": tally.advisories,
        "unknown": tally.unknown,
        "gaps": tally.gaps,
        "first_receiver": first,
        "reconnects": listener.reconnects,
    }
    print(json.dumps({**said, **counts}), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
