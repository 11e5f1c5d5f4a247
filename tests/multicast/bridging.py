"""A gateway that runs in a thread of the test, and the applications around it."""

from contextlib import ExitStack, suppress
from dataclasses import replace

import oz
from oz.services.gateway import Gateway
from support.inside import engine_of
from support.ports import lasting_udp_port
from support.waiting import DEADLINE, Thread, until

GROUP = "239.192.7.2"
OPTIONS = oz.Multicast(rate_kbps=11_000, recovery=5.0)
# For it a machine that is busy for a while is no silence.
PATIENT = replace(OPTIONS, stale_after=30.0)


def free_endpoint():
    """Give a multicast endpoint on the loopback whose UDP port nobody has."""
    return f"epgm://127.0.0.1;{GROUP}:{lasting_udp_port()}"


class Bridge(ExitStack):
    """A gateway and what speaks through it; all of it is closed at the end."""

    def __init__(self, directory, **options):
        super().__init__()
        self.inward, self.outward = free_endpoint(), free_endpoint()
        self.subscribers, self.publishers = f"ipc://{directory}/sub", f"ipc://{directory}/pub"
        ways = {
            "receive": self.inward,
            "send": self.outward,
            "subscribers": self.subscribers,
            "publishers": self.publishers,
        }
        self.gateway = self.enter_context(Gateway(**{**ways, "multicast": OPTIONS, **options}))
        self._thread = None
        self.callback(self._stop)

    def start(self):
        self._thread = Thread(self.gateway.run)
        self.until(lambda: self.gateway.is_ready)
        return self

    def until(self, condition, timeout=2 * DEADLINE):
        def holds():
            if not self._thread.is_alive():
                self._thread.outcome()
            return condition()

        return until(holds, timeout)

    def _stop(self):
        self.gateway.stop()
        if self._thread is not None:
            self._thread.outcome()

    def worker(self, role):
        return next(one for one in self.gateway.workers if one.role == role)

    def local_publisher(self):
        made = self.enter_context(oz.Publisher(connect=self.publishers, on_full="block"))
        made.wait_for_subscribers(timeout=DEADLINE)
        return made

    def local_subscriber(self, pattern="a.>"):
        listener = Listener(oz.Subscriber(self.subscribers, filtering="publisher", on_gap=lambda gap: None))
        self.enter_context(listener.socket)
        listener.socket.subscribe(pattern)
        listener.socket.wait_ready(timeout=DEADLINE)
        return listener

    def far_publisher(self):
        return self.enter_context(oz.Publisher(self.inward, multicast=OPTIONS, on_full="block"))

    def far_subscriber(self):
        listener = Listener(
            oz.Subscriber(
                self.outward, multicast=PATIENT, on_gap=lambda gap: None, on_advisory=lambda _: None
            )
        )
        self.enter_context(listener.socket)
        listener.socket.subscribe("")
        return listener

    def connect_far(self, publisher, listener):
        """Publish until what was published last is heard; give how many that took.

        Multicast knows no readiness. Who comes late was never meant to have what was published before, so
        that this is neither delivered nor lost.
        """
        before, hello = listener.known, Hello(publisher, listener)
        self.until(hello.is_heard)
        self._until_records_are_heard(publisher, listener, hello.is_heard)
        listener.unheard += hello.published - (listener.known - before)
        return hello.published

    def until_heard(self, publisher, listener):
        """Publish until what was published last is heard again; give how many that took.

        A process that begins is ready before the kernel hands it packets.
        """
        hello = Hello(publisher, listener)
        self.until(hello.is_heard)
        return hello.published

    def _until_records_are_heard(self, publisher, listener, is_heard):
        """Wait for what may yet be said of messages before the first one that was heard.

        The next record of the publisher says whether it began when somebody listened: then they are lost.
        """
        senders = getattr(engine_of(listener.socket).receiver, "senders", None)
        if senders is not None:
            self.until(lambda: listener.take() or all(one.first is None for one in senders.values()))
            return
        said = engine_of(publisher).records.beats_at
        self.until(lambda: engine_of(publisher).records.beats_at > said)
        # The gateway hears the record before the first of these, and reports losses before the second.
        for _ in range(2):
            self.until(is_heard)


class Hello:
    """What is published until it is heard.

    Attributes:
        published: how often that was so far.
    """

    def __init__(self, publisher, listener):
        self._publisher, self._listener = publisher, listener
        self.published = 0

    def is_heard(self):
        payload = b"hello %d" % self.published
        self._publisher.publish("a.hello", payload)
        self.published += 1
        self._listener.take()
        return self._listener.payloads[-1:] == [payload]


class Listener:
    """A subscriber and what it got."""

    def __init__(self, socket):
        self.socket = socket
        self.messages = []
        self.unheard = 0

    @property
    def known(self):
        """How many messages were delivered or reported lost."""
        return len(self.messages) + self.socket.stats.lost

    def take(self, timeout=0.05):
        with suppress(oz.Timeout):
            while True:
                self.messages.append(self.socket.receive(timeout=timeout))

    def settle(self, published, timeout=2 * DEADLINE):
        """Receive until all is delivered or reported lost; give how many were lost."""

        def is_settled():
            self.take()
            return self.known + self.unheard >= published

        until(is_settled, timeout)
        assert self.known + self.unheard == published
        return self.socket.stats.lost

    @property
    def payloads(self):
        return [message.payload for message in self.messages]
