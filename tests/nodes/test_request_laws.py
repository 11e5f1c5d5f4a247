"""Laws of requests under random events."""

from types import SimpleNamespace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from oz.errors import NoResponders, PeerLost, Timeout, WouldBlock
from oz.node.requests import Content, Requests, Send

PEERS = [b"a", b"b", b"c"]
peers = st.sampled_from(PEERS)


class RequestMachine(RuleBasedStateMachine):
    """Requests to a plain peer and a group of two, beside a model of the holders. Sessions end and come again."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.is_greeting = False
        self.sessions = dict.fromkeys(PEERS)
        self.full = set()
        self.requests = Requests(bytes(16), self, max_requests=8)
        self.model = {}
        self.late = 0

    # responders

    def _streams(self, excluded=()):
        found = [
            session for peer, session in self.sessions.items() if session is not None and peer not in excluded
        ]
        open_ones = [item for item in found if item.session.member not in self.full]
        if found and not open_ones:
            raise WouldBlock("full")
        return open_ones

    def all(self, content, excluded, now):
        found = self._streams(excluded)
        return [item for item in found if item.group is None] + [item for item in found if item.group][:1]

    def name(self, node):
        return node.decode()

    # the model: streams that hold each request, and how often it was sent

    def _act(self, effects):
        for effect in effects:
            if isinstance(effect, Send):
                record = self.model[effect.request]
                record.sent += 1
                record.held.append(effect.stream)
            else:
                record = self.model[effect]
                assert not record.has_ended
                record.replies += len(effect.replies)
                effect.replies.clear()
                record.has_ended = effect.has_ended

    def _begin(self, ask, *, is_many, retries, limit):
        matching = [session for session in self.sessions.values() if session is not None]
        try:
            request, effects = ask()
        except NoResponders:
            assert not matching
            assert not self.is_greeting
        except WouldBlock:
            is_full = matching and all(item.session.member in self.full for item in matching)
            assert is_full or len(self.requests) == 8
        else:
            self.model[request] = SimpleNamespace(
                is_many=is_many, tries=1 + retries, limit=limit, sent=0, replies=0, held=[], has_ended=False
            )
            self._act(effects)

    @rule(retries=st.integers(0, 2), timeout=st.sampled_from([0.5, 2.0, None]))
    def request(self, retries, timeout):
        self._begin(
            lambda: self.requests.request(Content("s", b"s"), self.now, timeout=timeout, retries=retries),
            is_many=False, retries=retries, limit=1,
        )  # fmt: skip

    @rule(limit=st.sampled_from([None, 1, 2]), timeout=st.sampled_from([0.5, 2.0, None]))
    def request_many(self, limit, timeout):
        self._begin(
            lambda: self.requests.request(Content("s", b"s"), self.now, timeout=timeout, limit=limit, is_many=True),
            is_many=True, retries=0, limit=limit,
        )  # fmt: skip

    @rule(peer=peers)
    def subscribe(self, peer):
        if self.sessions[peer] is None:
            group = None if peer == b"c" else "workers"
            self.sessions[peer] = SimpleNamespace(
                session=SimpleNamespace(member=peer), redelivers=False, group=group
            )
        self._act(self.requests.changed(self.now))

    @rule(peer=peers, is_gone=st.booleans())
    def end_session(self, peer, is_gone):
        stream, self.sessions[peer] = self.sessions[peer], None
        if stream is None:
            return
        if not is_gone:
            self.subscribe(peer)
        for record in self.model.values():
            record.held = [item for item in record.held if item is not stream]
        self._act(self.requests.session_ended(stream.session, self.now))

    @rule(peer=peers)
    def toggle_full(self, peer):
        self.full ^= {peer}

    @rule(is_greeting=st.booleans())
    def greet(self, is_greeting):
        self.is_greeting = is_greeting
        self._act(self.requests.changed(self.now))

    @rule(peer=peers, data=st.data())
    def reply(self, peer, data):
        if not self.model:
            return
        request = data.draw(st.sampled_from(list(self.model)))
        record = self.model[request]
        before, late = record.replies, self.requests.late
        self._act(self.requests.on_reply(peer, request.reply_to, "yes"))
        may_reply = any(item.session.member == peer for item in record.held)
        assert record.replies - before == (1 if may_reply and late == self.requests.late else 0)
        assert record.replies - before + self.requests.late - late == 1

    @rule(data=st.data())
    def cancel(self, data):
        if self.model:
            request = data.draw(st.sampled_from(list(self.model)))
            self.requests.cancel(request)
            self.model[request].has_ended = True

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 3.0]))
    def tick(self, seconds):
        self.now += seconds
        self._act(self.requests.tick(self.now))
        deadline = self.requests.next_deadline()
        assert deadline is None or deadline > self.now

    @invariant()
    def each_request_ends_once(self):
        assert len(self.requests) == sum(not record.has_ended for record in self.model.values())
        for request, record in self.model.items():
            assert request.has_ended == record.has_ended
            assert not request.has_ended or request.reply_to not in self.requests._open
            if not request.has_ended:
                assert list(request.holders) == record.held
            # Each try has one member of the group and the plain subscription.
            assert record.is_many or record.sent <= 2 * record.tries
            assert record.limit is None or record.replies <= record.limit
            assert request.error is None or isinstance(
                request.error, (NoResponders, PeerLost, Timeout, WouldBlock)
            )

    def teardown(self):
        self.now += 10.0
        self._act(self.requests.tick(self.now))
        for request, record in self.model.items():
            if request.deadline < 10.0:
                assert record.has_ended


TestRequestMachine = RequestMachine.TestCase
