"""What tests of links have in common: a bus of names, and one node that is told of them."""

from oz.protocol.node.connections import Connections
from oz.protocol.node.links import Links
from oz.protocol.node.membership import Membership
from oz.protocol.node.presence import network_origin
from oz.protocol.node.steps import Dial
from oz.wire.discovery import pack
from support.announcing import announcement
from support.hearing import Subscriber

LOST_AFTER = 3.0
SERVER = "tcp://127.0.0.1:1"
OWN = announcement(2, local_endpoint="ipc://own")
PEER = announcement(4, local_endpoint=None, endpoints=("tcp://127.0.0.1:4",))
ORIGIN = network_origin(PEER.uuid)
DIAL = Dial(PEER.endpoints[0], PEER.name)


class Connected:
    """Who is connected to one publisher."""

    def __init__(self):
        self.there, self.cut, self.passing_on = [], set(), set()

    def standing(self):
        return list(self.there), set(self.cut)

    def forwarders(self):
        return set(self.passing_on)

    def come(self, *peers):
        self.there += peers
        self.cut -= {peer.uuid for peer in peers}

    def go(self, *peers, is_cut=False):
        self.there = [one for one in self.there if one not in peers]
        self.cut |= {peer.uuid for peer in peers} if is_cut else set()


class Bus:
    """The links of one node, with its ports, and a clock that jumps."""

    def __init__(self, *, servers=(), sockets=None, echo=False):
        self.sub, self.local, self.network = Subscriber(), Connected(), Connected()
        self.connections = Connections(OWN, self.sub, sockets)
        self.links = Links(
            Membership(OWN, LOST_AFTER),
            self.connections,
            self.local,
            self.network,
            servers=servers,
            echo=echo,
        )
        self.now = 100.0
        self.links.start(self.now)
        self.links.tick(self.now)

    def look(self):
        self.links.wake()
        return self.links.look(self.now)

    def up(self, *peers):
        """Have peers come up that are linked and heard."""
        self.network.come(*peers)
        steps = self.look()
        for peer in peers:
            self.sub.hear(network_origin(peer.uuid))
        return steps

    def run(self, seconds, *speaking):
        """Let time pass from one deadline to the next; the steps."""
        steps, ends = [], self.now + seconds
        for _ in range(1_000):
            at = self.links.next_deadline(self.now)
            if at is None or at > ends:
                self.now = ends
                return steps
            self.now = max(self.now, at)
            for peer in speaking:
                self.sub.hear(network_origin(peer.uuid))
            steps += self.links.tick(self.now)
            self.links.announcements(self.now)
        raise AssertionError("it has something due again and again")

    def hear_server(self, *replies):
        steps = []
        for reply in replies:
            steps += self.links.receive(SERVER, pack(reply), self.now)
        return steps
