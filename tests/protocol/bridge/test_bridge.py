"""What is asked for on behalf of another bus, and what may come onto it."""

from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.protocol.bridge import bridge
from oz.protocol.bridge.bridge import ImportFilter, Ledger, has_passed, narrowed, quick_patterns
from oz.protocol.bridge.spanning_tree import Offer, to_text
from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.stream import OutStream
from oz.wire.keys import DeliveryOptions
from support.cases import each

PATTERNS = [oz.compile(text) for text in (">", "a.>", "a.*", "a.b", "*.b", "*.*.c", "b", "_INBOX.x.*")] + [
    oz.compile("^a.*c$", "regex"),
    oz.compile(b"a.", "zmq"),
    oz.compile("a?b*", "redis"),
]
SUBJECTS = ["a", "b", "a.b", "a.c", "b.b", "a.b.c", "x.y.c", "aab", "axbc", "_INBOX.x.1"]


def stream(*patterns, group="", policy="round_robin", joined=1):
    made = OutStream(b"n" * 16, b"k", DeliveryOptions(group=group, policy=policy), b"o" * 16, joined)
    made.listeners = 1
    made.patterns = {oz.compile(one): 1 for one in patterns}
    return made


@given(st.sampled_from(PATTERNS), st.lists(st.sampled_from(PATTERNS), min_size=1).map(tuple))
def test_what_is_asked_for_is_all_that_is_wanted_and_allowed(wanted, allowed):
    import_filter = ImportFilter(allowed)
    asked = import_filter.narrow(wanted)
    for subject in SUBJECTS:
        if wanted.matches(subject) and import_filter.lets(subject.encode()):
            assert any(one.matches(subject) for one in asked) or subject.startswith("_INBOX.")


def test_what_is_found_by_quick_patterns_is_all_that_is_wanted_and_no_regex_is_tried():
    for pattern in (*PATTERNS, oz.compile(r"a\.(b|c)x*", "regex")):
        found_by = quick_patterns(pattern)
        assert all(
            any(one.matches(subject) for one in found_by) for subject in SUBJECTS if pattern.matches(subject)
        )
        assert "regex" not in {one.dialect for one in found_by}
    assert quick_patterns(PATTERNS[1]) == (PATTERNS[1],)


def test_no_more_is_asked_for_than_is_allowed():
    md, news = oz.compile("md.>"), oz.compile("news")
    assert narrowed(oz.compile(">"), (md, news)) == (md, news)
    assert narrowed(oz.compile("md.eur"), (md, news)) == (oz.compile("md.eur"),)
    assert narrowed(oz.compile("*.eur"), (md, news)) == (oz.compile("*.eur"),)
    assert narrowed(oz.compile("orders.>"), (md, news)) == ()
    inbox = oz.compile("_INBOX.abc.*")
    assert narrowed(inbox, (md,)) == (inbox,)


@each("allowed", [(), (oz.compile(">"),), (oz.compile(b"", "zmq"),)])
def test_what_is_of_its_bus_alone_stays(allowed):
    import_filter = ImportFilter(allowed)
    assert not import_filter.lets(b"_LOCAL.a")
    assert not import_filter.lets(b"_OZ.NAMING.a")
    assert import_filter.lets(b"_INBOX.a.1")
    assert import_filter.lets(b"a.b")


def ledger_of(*streams):
    ledger = Ledger()
    ledger.update(streams, {})
    return ledger


def asked(ledger):
    return {(pattern.text, group) for pattern, group in ledger.interests}


def test_private_patterns_are_of_no_interest_to_others():
    ledger = ledger_of(stream("_OZ.PEER.abc", "_LOCAL.>", "a.b", "_INBOX.abc.*"))
    assert asked(ledger) == {("a.b", ""), ("_INBOX.abc.*", "")}


def test_who_was_cut_off_or_leaves_wants_nothing():
    cut, leaving, gone = stream("a"), stream("b"), stream("c")
    cut.vanished_at = 1.0
    leaving.is_closing = True
    gone.is_gone = True
    assert not ledger_of(cut, leaving, gone).interests


def test_a_forwarder_that_says_nothing_offers_nothing_but_still_wants_what_it_wants():
    offer = Offer((b"r" * 16,), 0, 1)
    offering = stream(f"_OZ.FORWARDER.{to_text(offer)}", "a.b")
    ledger = ledger_of(offering)
    assert ledger.offers == [offer]
    ledger.update([offering], {}, {offering.name[:14]})
    assert (ledger.offers, asked(ledger)) == ([], {("a.b", "")})
    ledger.update([offering], {})
    assert ledger.offers == [offer]


def test_a_group_has_the_policy_of_its_senior_member():
    ledger = ledger_of(
        stream("a", group="g", policy="sticky", joined=5),
        stream("b", group="g", policy="failover", joined=2),
        stream("a"),
    )
    assert ledger.policies == {"g": "failover"}
    assert asked(ledger) == {("a", "g"), ("b", "g"), ("a", "")}


def test_offers_of_forwarders_are_found_and_malformed_ones_passed_over():
    offers = [Offer((b"r" * 16,), 0, serial) for serial in (1, 2)]
    told = stream(*(f"_OZ.FORWARDER.{to_text(one)}" for one in offers), "_OZ.FORWARDER.rubbish")
    ledger = ledger_of(told)
    assert ledger.offers == [offers[1]]
    assert not ledger.interests
    told.vanished_at = 1.0
    ledger.update([told], {})
    assert ledger.offers == []


events = st.lists(
    st.tuples(
        st.sampled_from(["want", "drop", "cut", "return", "end", "take"]),
        st.integers(0, 2),
        st.sampled_from([*PATTERNS, oz.compile("_LOCAL.a")]),
    ),
    max_size=40,
)


@given(events)
def test_changes_add_up_to_what_is_asked_for(happened):
    streams = [stream(joined=number, group="g" if number == 2 else "") for number in range(3)]
    ledger, changed, known = Ledger(), {}, set()

    def take():
        ledger.update([one for one in streams if not one.is_gone], changed)
        changed.clear()
        for interest, has_come in ledger.take_changes().items():
            assert has_come != (interest in known)
            (known.add if has_come else known.remove)(interest)
        standing = [one for one in streams if one.vanished_at is None and not one.is_gone]
        assert (
            known
            == set(ledger.interests)
            == {
                (pattern, one.delivery.group)
                for one in standing
                for pattern in one.patterns
                if pattern.text != "_LOCAL.a"
            }
        )

    for what, number, pattern in happened:
        one = streams[number]
        if what == "want" and not one.is_gone:
            one.patterns[pattern] = 1
            changed.setdefault(one, {})[pattern] = None
        elif what == "drop" and one.patterns.pop(pattern, None):
            changed.setdefault(one, {})[pattern] = None
        elif what in ("cut", "return"):
            one.vanished_at = 1.0 if what == "cut" else None
        elif what == "end":
            one.is_gone = True
        elif what == "take":
            take()
    take()


def test_a_message_that_was_here_is_known_by_its_header():
    here, there = b"1" * 8, b"2" * 8
    assert not has_passed(None, here)
    assert not has_passed("text of an application", here)
    assert not has_passed(there, here)
    assert has_passed(there + here, here)
    # Not where it only looks like it.
    assert not has_passed(b"22211111" + b"11111222", b"11111111")
    assert has_passed(b"".join(bytes([one]) * 8 for one in range(16)), here)


GREEDY, OTHER = Account(Peer(7, 1)), Account(Peer(8, 2))


def connected(*patterns, connection=GREEDY):
    made = stream(*patterns)
    made.account = connection
    return made


def test_one_connection_has_no_more_asked_for_elsewhere_than_its_share(monkeypatch):
    monkeypatch.setattr(bridge, "MOST_INTERESTS", 3)
    greedy = [connected(*(f"x{number}.{at}" for at in range(2))) for number in range(3)]
    other = connected("a", "b", connection=OTHER)
    ledger = ledger_of(*greedy, other)
    assert {("a", ""), ("b", "")} < asked(ledger)
    assert len(asked(ledger)) == 2 + 3
    assert sum(map(len, ledger.withheld.values())) == 3
    gone = next(pattern for pattern in greedy[0].patterns)
    del greedy[0].patterns[gone]
    ledger.update([*greedy, other], {greedy[0]: [gone]})
    assert len(asked(ledger)) == 2 + 3
    ledger.update([greedy[2], other], {})
    assert asked(ledger) == {("a", ""), ("b", ""), ("x2.0", ""), ("x2.1", "")}
    assert not ledger.withheld


def test_what_is_withheld_and_taken_back_is_never_asked_for(monkeypatch):
    monkeypatch.setattr(bridge, "MOST_INTERESTS", 1)
    greedy = connected("a", "b")
    ledger = ledger_of(greedy)
    del greedy.patterns[oz.compile("b")]
    ledger.update([greedy], {greedy: [oz.compile("b")]})
    assert not ledger.withheld
    assert asked(ledger) == {("a", "")}
