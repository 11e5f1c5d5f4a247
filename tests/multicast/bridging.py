"""A gateway that runs in a thread of the test, and the programs around it."""

from contextlib import ExitStack, suppress
from dataclasses import replace

from multicast.loopback import publisher_at, subscriber_at
from oz.errors import Timeout
from oz.options import Multicast
from oz.publisher.sync import Publisher
from oz.services.gateway import Gateway
from oz.subscriber.sync import Subscriber
from support.inside import engine_of
from support.ports import lasting_udp_port
from support.waiting import DEADLINE, Thread, until

GROUP = "239.192.7.2"
OPTIONS = Multicast(rate_kbps=11_000, recovery=5.0)
# For it a machine that is busy for a while is no silence.
PATIENT = replace(OPTIONS, stale_after=30.0)
LOCAL_PUBLISHERS = 6


def free_endpoint():
    """Return a multicast endpoint on the loopback interface whose UDP port is free."""
    return f"epgm://127.0.0.1;{GROUP}:{lasting_udp_port()}"


class Bridge(ExitStack):
    """A gateway and the programs that use it; all are closed at the end."""

    def __init__(self, directory, **options):
        super().__init__()
        self.inward, self.outward = free_endpoint(), free_endpoint()
        self.subscribers, self.publishers = f"ipc://{directory}/sub", f"ipc://{directory}/plain"
        self._free = [f"ipc://{directory}/pub{number}" for number in range(LOCAL_PUBLISHERS)]
        ways = {
            "receive": self.inward,
            "send": self.outward,
            "subscribers": self.subscribers,
            "publishers": self.publishers,
            "connect": [*self._free],
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
        return next(worker for worker in self.gateway._workers if worker.role == role)

    def local_publisher(self):
        """Return a publisher to which the gateway has a link."""
        made = Publisher(self._free.pop(), on_full="block")
        self.callback(made.close, timeout=0)
        made.wait_for_subscribers(timeout=DEADLINE)
        return made

    def plain_publisher(self):
        """Return a publisher that connects to the gateway."""
        made = Publisher(connect=self.publishers, on_full="block")
        self.callback(made.close, timeout=0)
        made.wait_for_subscribers(timeout=DEADLINE)
        return made

    def local_subscriber(self, pattern="a.>"):
        listener = Listener(Subscriber(self.subscribers, filtering="publisher", on_gap=lambda gap: None))
        self.callback(listener.socket.close)
        listener.socket.subscribe(pattern)
        listener.socket.wait_ready(timeout=DEADLINE)
        return listener

    def far_publisher(self):
        made = publisher_at(self.inward, OPTIONS, on_full="block")
        self.callback(made.close, timeout=0)
        return made

    def far_subscriber(self):
        listener = Listener(subscriber_at(self.outward, PATIENT, on_gap=lambda gap: None))
        self.callback(listener.socket.close)
        listener.socket.subscribe(b"")
        return listener

    def connect_far(self, publisher, listener):
        """Publish until the last message is heard; return the number of messages.

        Multicast has no readiness. Messages before a subscriber joined are neither delivered nor lost.
        """
        before, hello = listener.known, Hello(publisher, listener)
        self.until(hello.is_heard)
        self._until_records_are_heard(publisher, listener, hello.is_heard)
        listener.unheard += hello.published - (listener.known - before)
        return hello.published

    def until_heard(self, publisher, listener):
        """Publish until the last message is heard again; return the number of messages.

        A new process is ready before the kernel delivers packets to it.
        """
        hello = Hello(publisher, listener)
        self.until(hello.is_heard)
        return hello.published

    def _until_records_are_heard(self, publisher, listener, is_heard):
        """Wait until it is known whether messages before the first one were lost.

        The next record of the publisher shows whether it began while a subscriber listened.
        """
        sources = [
            place.multicast
            for place in engine_of(listener.socket).places.values()
            if place.multicast is not None
        ]
        if sources:
            senders = sources[0].listener.receiver.senders
            self.until(lambda: listener.take() or all(item.first is None for item in senders.values()))
            return
        sender = getattr(engine_of(publisher), "_sender", None)
        if sender is not None:
            # The second of two records decides.
            for _ in range(2):
                beat = sender.next_beat
                self.until(lambda beat=beat: sender.next_beat > beat)
        # The gateway hears the record before the first of these, and reports losses before the second.
        for _ in range(2):
            self.until(is_heard)


class Hello:
    """A message that is published until it is heard.

    Attributes:
        published: number of messages.
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
    """A subscriber and the messages that it received."""

    def __init__(self, socket):
        self.socket = socket
        self.messages = []
        self.unheard = 0

    @property
    def known(self):
        """Number of messages that were delivered or reported lost."""
        return len(self.messages) + self.socket.stats.lost

    def take(self, timeout=0.05):
        with suppress(Timeout):
            while True:
                self.messages.append(self.socket.receive(timeout=timeout))

    def settle(self, published, timeout=2 * DEADLINE):
        """Receive until all messages are delivered or reported lost; return the number of lost ones."""

        def is_settled():
            self.take()
            return self.known + self.unheard >= published

        until(is_settled, timeout)
        assert self.known + self.unheard == published
        return self.socket.stats.lost

    @property
    def payloads(self):
        return [message.payload for message in self.messages]
