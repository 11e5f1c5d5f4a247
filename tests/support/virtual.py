"""The same as `support.routed.Stage` on a bus in a test tube: no sockets, no threads, and time that jumps."""

from contextlib import ExitStack

import oz.testing
from support.routed import mark


class VirtualStage(ExitStack):
    """Makes publishers and subscribers of one bus, with the calls of those that block.

    Attributes:
        bus: where they are.
    """

    def __init__(self):
        super().__init__()
        self.bus = self.enter_context(oz.testing.Bus())

    def pub(self, endpoint=None, *, context=None, **options):
        """Make a publisher; of a context there is no need here."""
        if endpoint is not None:
            options["bind"] = endpoint
        return self.bus.blocking(self.bus.publisher(**options))

    def sub(self, *pubs, context=None, filtering="publisher", **options):
        """Make a subscriber, with publisher-side filtering as a rule."""
        endpoints = [pub if isinstance(pub, str) else pub.endpoint for pub in pubs]
        made = self.bus.subscriber(connect=endpoints, filtering=filtering, **options)
        return self.bus.blocking(made)

    def member(self, *pubs, pattern="a.>", **options):
        """Make one with a subscription; give it and the list that it collects its messages in."""
        sub, got = self.sub(*pubs), []
        sub.subscribe(pattern, handler=got.append, **options)
        mark(sub)
        return sub, got
