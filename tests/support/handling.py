"""What the tests of handlers share: messages, and queues that note what they report."""

from types import SimpleNamespace

from oz.protocol.node.handler_queue import HandlerQueue


def message(subject, number=0):
    return SimpleNamespace(subject=subject, number=number)


def filled(queue, count, subject="a"):
    for number in range(count):
        queue.put(message(subject, number))


class Heard:
    """What queues of one kind reported."""

    def __init__(self, kind):
        self.failed = []
        self.dropped = []
        self._kind = kind

    def queue(self, handlers, handler, **handler_queue):
        return self._kind(
            handlers,
            HandlerQueue(**handler_queue),
            handler,
            lambda of, error: self.failed.append((of.number, repr(error))),
            lambda count, of: self.dropped.append((count, of.number)),
        )
