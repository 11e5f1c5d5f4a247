"""A publisher, a subscriber or a node on a host: `actor.py KIND OPTIONS`; answers each line of JSON with one.

A line is `["method", arguments…]`, with a method of `Actor`. The answer is its result.
"""

import json
import logging
import sys
import threading
import time
from collections import Counter

import oz

LONGEST = 60.0


class Actor:
    """A publisher, subscriber or node, and its counts."""

    def __init__(self, kind, options):
        self.gaps, self.seen, self.disorder = [], [], 0
        self.sent, self.may_publish = Counter(), threading.Event()
        self.lock = threading.Lock()
        self.log = []
        handler = logging.Handler()
        handler.emit = lambda record: self.log.append(record.getMessage())
        logging.getLogger("oz").addHandler(handler)
        if kind == "Subscriber":
            more = {"filtering": "publisher", "on_gap": lambda gap: self.gaps.append(["", gap.count])}
            options = {**more, **options}
        if kind == "Node":
            advertise = oz.NodeOptions(advertise=options.pop("advertise", None))
            options = {"on_event": self.keep_loss, "options": advertise, **options}
        self.held = getattr(oz, kind)(**options)

    def listen(self, pattern):
        """Subscribe, and wait until publishers know it; messages are numbers."""
        self.held.subscribe(pattern, handler=self.take)
        self.ready()
        if isinstance(self.held, oz.Subscriber):
            threading.Thread(target=self.held.run, daemon=True).start()

    def keep_loss(self, event):
        """Keep the publisher and the number of lost messages."""
        if event.kind == "loss":
            self.gaps.append([event.about, event.count])

    def take(self, message):
        number = int(message.payload)
        with self.lock:
            self.disorder += bool(self.seen) and number <= self.seen[-1]
            self.seen.append(number)

    def ready(self):
        self.held.wait_ready(timeout=LONGEST)

    def begin(self, subjects, pace, size=0, count=None):
        """Publish numbers on each subject in a thread, for ever or `count` times, padded with blanks."""
        self.may_publish.set()
        self.publishing = threading.Thread(target=self._publish, args=(subjects, pace, size, count))
        self.publishing.start()

    def _publish(self, subjects, pace, size, count):
        payloads = str if isinstance(self.held, oz.Node) else str.encode
        began, round_ = time.monotonic(), 0
        while self.may_publish.is_set() and round_ != count:
            for subject in subjects:
                self.held.publish(subject, payloads(str(self.sent[subject]).ljust(size)))
                self.sent[subject] += 1
            round_ += 1
            time.sleep(max(0.0, began + round_ * pace - time.monotonic()))

    def end(self):
        """Stop publishing; how many went on each subject."""
        self.may_publish.clear()
        self.publishing.join()
        return self.sent

    def got(self, source=""):
        """Return the counts of delivered and lost messages, of one source or of all sources."""
        with self.lock:
            kinds = [count for about, count in self.gaps if source in ("", about)]
            return {
                "delivered": len(self.seen),
                "lost": self.held.stats.lost,
                "uncounted": kinds.count(None),
                "disorder": self.disorder,
                "latest": max(self.seen, default=-1),
            }

    def serve(self, subject):
        self.held.subscribe(subject, handler=lambda message: message.reply(self.held.name))

    def request(self, subject, timeout):
        """Ask; the answer or the error, and how long it took."""
        began = time.monotonic()
        try:
            said = self.held.request(subject, timeout=timeout).payload
        except oz.OzError as error:
            said = type(error).__name__
        return [said, time.monotonic() - began]

    def peers(self):
        return sorted(peer.name for peer in self.held.peers)

    def logged(self):
        return self.log

    def interest(self, subject):
        return self.held.has_subscribers(subject)

    def name(self):
        return self.held.name

    def endpoint(self):
        return self.held.endpoint


def main(kind, options):
    actor = Actor(kind, json.loads(options))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        print(json.dumps(getattr(actor, what)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
