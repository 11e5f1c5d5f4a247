"""Events in any order: the effects of the roster stay consistent."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from oz.node.roster import Dial, EndSession, HangUp, PeerGone, PeerResumed, PeerSilent, PeerUp, Roster
from oz.wire import links
from oz.wire.links import Card
from support.sizes import size

LIMIT = 6
NODES = [bytes([number] * 16) for number in range(4)]
PREFIX = "ipc:///run/oz/b-"
ENDPOINTS = [f"tcp://10.0.0.{number}:1" for number in range(1, 5)] + [
    f"{PREFIX}{number}" for number in range(3)
]

nodes = st.sampled_from(NODES)
endpoints = st.sampled_from(ENDPOINTS)
lists = st.lists(endpoints, max_size=3)
sessions = st.sampled_from([b"1", b"2"])
cards = st.builds(
    Card,
    node=nodes,
    bus=st.sampled_from(["bus", "bus", "bus", "other"]),
    name=st.sampled_from(["a", "b"]),
    host=st.sampled_from(["h", "h", "elsewhere"]),
    pid=st.just(1),
    endpoints=lists.map(tuple),
    kind=st.just("node"),
)


class AnyOrder(RuleBasedStateMachine):
    """Roster of node 0, whose own endpoint is the first one."""

    def __init__(self):
        super().__init__()
        own = Card(
            node=NODES[0], bus="bus", name="a", host="h", pid=1, endpoints=(ENDPOINTS[0],), kind="node"
        )
        self.roster = Roster(own, limit=LIMIT, local_prefix=PREFIX)
        self.now = 0.0
        self.dialled, self.up, self.silent = set(), set(), set()

    def apply(self, effects):
        ended = None
        for effect in effects:
            if isinstance(effect, Dial):
                assert effect.endpoint not in self.dialled
                assert effect.endpoint != ENDPOINTS[0]
                self.dialled.add(effect.endpoint)
            elif isinstance(effect, HangUp):
                self.dialled.remove(effect.endpoint)
            elif isinstance(effect, EndSession):
                ended = effect.node
            elif isinstance(effect, PeerUp):
                assert effect.card.node not in self.up
                assert effect.card.node != NODES[0]
                assert effect.card.bus == "bus"
                self.up.add(effect.card.node)
            elif isinstance(effect, PeerSilent):
                assert effect.card.node in self.up - self.silent
                self.silent.add(effect.card.node)
            elif isinstance(effect, PeerResumed):
                self.silent.remove(effect.card.node)
            elif isinstance(effect, PeerGone):
                assert ended == effect.card.node
                self.up.remove(effect.card.node)
                self.silent.discard(effect.card.node)

    @rule(endpoint=endpoints)
    def seed(self, endpoint):
        self.apply(self.roster.seed(endpoint, self.now))

    @rule(endpoint=endpoints)
    def found(self, endpoint):
        self.apply(self.roster.found(endpoint, self.now))

    @rule(endpoint=endpoints)
    def gone(self, endpoint):
        self.apply(self.roster.gone(endpoint, self.now))

    @rule(peers=st.lists(st.tuples(nodes, lists), max_size=3))
    def introduced(self, peers):
        self.apply(self.roster.introduced(peers, self.now))

    @rule(card=cards, session=sessions)
    def on_hello(self, card, session):
        self.apply(self.roster.on_hello(card, self.now, session))

    @rule(node=nodes, what=st.sampled_from(["down", "ended"]), session=sessions)
    def on_session(self, node, what, session):
        self.apply(self.roster.on_session(node, what, self.now, session))

    @rule(endpoint=endpoints, card=st.none() | cards)
    def on_live(self, endpoint, card):
        self.apply(self.roster.on_live(endpoint, card, self.now))

    @rule(endpoint=endpoints)
    def on_silent(self, endpoint):
        self.apply(self.roster.on_silent(endpoint, self.now))

    @rule(endpoint=endpoints, reason=st.sampled_from([links.CLOSED, links.LIMIT, links.OTHER_BUS, None]))
    def on_end(self, endpoint, reason):
        self.apply(self.roster.on_end(endpoint, reason, self.now))

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0, 60.0, 600.0]))
    def tick(self, seconds):
        self.now += seconds
        self.apply(self.roster.tick(self.now))
        deadline = self.roster.next_deadline()
        assert deadline is None or deadline > self.now

    @invariant()
    def holds_what_it_reports(self):
        roster = self.roster
        assert {node for node, peer in roster.by_id.items() if peer.state != "known"} == self.up
        assert {text for text, item in roster._endpoints.items() if item.is_dialled} == self.dialled
        assert len(roster._endpoints) <= LIMIT
        for node, peer in roster.by_id.items():
            assert peer.dialled is None or (peer.dialled.owner is peer and peer.dialled.is_dialled)
            if peer.is_linked:
                assert peer.link in self.dialled
                assert roster._endpoints[peer.link].node == node
        for text, item in roster._endpoints.items():
            assert item.owner is None or (
                item.owner.dialled is item and item.owner is roster.by_id[item.owner.node]
            )
            assert item.is_source or item.is_dialled or item.refused_until > 0, text


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=size(30, 300), stateful_step_count=40, deadline=None, derandomize=True
)
