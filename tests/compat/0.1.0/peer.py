"""A peer of version 0.1.0: sockets, nodes, a name server and forwarders, told over stdin what to do.

It runs on the package in oz.tar.xz beside it. It speaks the API of 0.1.0: never change it with the API.
A line in is JSON, `[method, arguments…]`; a line out is its result, or `{"error": …}`.
"""

import json
import sys
import threading
import time

import oz
from oz.services.forwarder import Forwarder
from oz.services.nameserver import NameServer


class Bytes:
    """Payloads of nodes: bytes as they are."""

    @staticmethod
    def encode(value):
        return value

    @staticmethod
    def decode(payload):
        return payload


def told(message):
    """What the other side compares."""
    headers = {
        name: value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in message.headers.items()
    }
    return [message.subject, bytes(message.payload).decode("latin-1"), headers, message.gap]


class Peer:
    """Everything that it can be told to do; what it makes it keeps by a number."""

    def __init__(self):
        self.made = []

    def _keep(self, made):
        self.made.append(made)
        return len(self.made) - 1

    def where(self):
        return [oz.__file__, oz.__version__]

    def publisher(self, **options):
        made = oz.Publisher("tcp://127.0.0.1:*", **options)
        return [self._keep(made), made.endpoint]

    def subscriber(self, endpoints, filtering, shared):
        return self._keep(oz.Subscriber(endpoints, filtering=filtering, shared=shared))

    def subscribe(self, number, pattern, group=None, sticky=False, last_value=False):
        policy = "sticky" if sticky else "turn"
        self.made[number].subscribe(pattern, group=group, policy=policy, last_value=last_value)

    def wait_ready(self, number, seconds):
        self.made[number].wait_ready(timeout=seconds)

    def wait_for_subscribers(self, number, count, seconds):
        self.made[number].wait_for_subscribers(count, timeout=seconds)

    def publish(self, number, messages):
        for subject, payload, headers, key in messages:
            self.made[number].publish(subject, payload.encode("latin-1"), headers=headers, key=key)
        self.made[number].flush()

    def report_loss(self, number, count):
        self.made[number].report_loss(count)

    def receive(self, number, seconds):
        try:
            return told(self.made[number].receive(timeout=seconds))
        except oz.Timeout:
            return None

    def node(self, bus, name, directory, nameserver=None):
        where = {"nameserver": nameserver, "bind": "tcp://127.0.0.1:*"} if nameserver else {}
        return self._keep(oz.Node(name, bus=bus, directory=directory, codec=Bytes(), **where))

    def wait_for_peers(self, number, names, seconds):
        self.made[number].wait_for_peers(names, timeout=seconds)

    def listen(self, number, pattern, group=None):
        return self._keep(self.made[number].subscribe(pattern, group=group))

    def answer(self, number, pattern):
        self.made[number].subscribe(pattern, handler=self._answer)

    def _answer(self, message):
        if message.payload == b"raise":
            raise ValueError("as asked")
        # The way that a forwarder wrote down would make the answer look as if it had been there already.
        headers = {name: value for name, value in message.headers.items() if name != "oz-via"}
        message.reply(b"answer to " + message.payload, headers=headers)

    def request(self, number, subject, payload, headers, seconds):
        asked = payload.encode("latin-1")
        ends = time.monotonic() + seconds
        while True:
            try:
                return told(self.made[number].request(subject, asked, seconds, headers=headers))
            except oz.NoResponders:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.01)

    def nameserver(self):
        made = NameServer("tcp://127.0.0.1:*")
        threading.Thread(target=made.run, daemon=True).start()
        return [self._keep(made), made.endpoint]

    def forwarder(self, directory, *buses):
        made = Forwarder([{"bus": bus, "directory": directory} for bus in buses])
        threading.Thread(target=made.run, daemon=True).start()
        return self._keep(made)

    def is_settled(self, number):
        return self.made[number].is_settled

    def end(self, number):
        made = self.made[number]
        if isinstance(made, (Forwarder, NameServer)):
            made.stop()
        else:
            made.close(timeout=1.0)


def main():
    """Do what each line says."""
    peer = Peer()
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        try:
            result = getattr(peer, method)(*arguments, **options)
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
