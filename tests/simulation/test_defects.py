"""Defects that oz once had are put back, and are found: a simulation that finds nothing proves nothing."""

import pytest

from oz.protocol.node.links import Links
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.key_holders import KeyHolders
from oz.protocol.publisher.lifetimes import Lifetimes
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.send_buffer import Passing
from oz.protocol.publisher.stream import OutStream
from oz.protocol.subscriber import sequences
from oz.protocol.subscriber.declarations import Declarations, SubscriptionChanges
from oz.protocol.subscriber.receive_buffer import ConflatingBuffer
from oz.protocol.subscriber.streams import Streams
from simulation.crowds import Crowd
from simulation.hostile import ForgedWorld, HostileWorld
from simulation.nodes import NodeFault, NodeWorld
from simulation.schedule import Fault
from simulation.world import World, run
from support.sizes import in_suite

MOST = 60
"""Seeds in which each is to be found; the first of them finds it, until a run changes."""


def starve(monkeypatch):
    """Tell streams from the first one on each time; who finds no room waits for the next time."""
    beat = Records.beat

    def beat_and_forget(self, now):
        beat(self, now)
        self._telling.clear()

    monkeypatch.setattr(Records, "beat", beat_and_forget)


def overtake(monkeypatch):
    """Pass what a full member refuses on to another, whatever that has been given already."""
    monkeypatch.setattr(Passing, "_latest", lambda self, member: {})


def declare_once(monkeypatch):
    """Do not declare again what a publisher has not answered."""
    monkeypatch.setattr(Declarations, "renew", lambda self, missing, now: SubscriptionChanges())


def forget_members(monkeypatch):
    """Begin at 0 with a member of a queue group that was cut off and returns."""
    monkeypatch.setattr(Lifetimes, "_keep_numbering", lambda self, stream, now: None)


def hand_over_one_by_one(monkeypatch):
    """Send what members take over from another without regard to what the first of them refuses."""
    share = Passing.share

    def share_and_forget(self, *args, **kwargs):
        follow, waits, rest = share(self, *args, **kwargs)
        for batch in follow:
            del self._pending[batch.stream]
        return follow, waits, rest

    monkeypatch.setattr(Passing, "share", share_and_forget)


def compare_checks_only(monkeypatch):
    """Do not look again at a peer that was silent at a look, and not at the check before it."""

    def has_changed(self):
        is_other = self.connections.silent != self._was_silent
        return self._has_acted or is_other or self._look_who_stands() != self._standing

    monkeypatch.setattr(Links, "_has_changed", has_changed)


def number_only(monkeypatch):
    """Number a large message, and do not send it."""

    def send_large(self, accumulated):
        for stream in accumulated[0].streams:
            stream.sequence += 1

    monkeypatch.setattr(Batches, "send_large", send_large)


def keep_shared(monkeypatch):
    """Go on asking for a shared pattern that nobody here wants any more."""
    monkeypatch.setattr(Streams, "_unshare", lambda self, subscription: [])


def drop_the_newest(monkeypatch):
    """Drop of too many subjects the one that came up last."""

    def put(self, messages):
        before = len(self._messages)
        self._messages.update((one.subject, one) for one in messages if len(self._messages) < self._limit)
        return before + len(messages) - len(self._messages)

    monkeypatch.setattr(ConflatingBuffer, "put", put)


def let_anybody_take_back(monkeypatch):
    """Count an unsubscription of whoever sends it."""
    monkeypatch.setattr(KeyHolders, "take_back", lambda self, key, account: self.end_one(key))


def believe_any_epoch(monkeypatch):
    """Believe that a publisher is in whatever epoch, and at whatever number, somebody says in its name."""
    monkeypatch.setattr(sequences, "can_be", lambda *args, **kwargs: True)


def know_chunks_by_their_numbers(monkeypatch):
    """Take what comes first under a number for all that is declared under it."""
    monkeypatch.setattr(OutStream, "place", lambda self, number, content: number)


def lose_what_is_for_members(world):
    """Have what a new publisher sends to members of a group stay on its way, and then be lost."""
    members = [one.name for one in world.subscribers if one.delivery.group and one.name not in world.quiet]
    faults = []
    for at in (1.0, 3.2):
        faults.append(Fault(at + 0.05, "kill", ("p3",), 0.05))
        for name in members:
            faults += [Fault(at, "stall", (name, "hub"), 1.9), Fault(at + 1.5, "cut", (name, "hub"), 0.05)]
    return sorted(faults)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("defect", "first", "kind"),
    in_suite(
        [
            (starve, 6, World),
            (hand_over_one_by_one, 6, Crowd),
            (keep_shared, 1, World),
            (let_anybody_take_back, 0, HostileWorld),
            (believe_any_epoch, 0, ForgedWorld),
        ],
        [
            (overtake, 0, Crowd),
            (declare_once, 2, World),
            (number_only, 0, World),
            (drop_the_newest, 2, World),
            (know_chunks_by_their_numbers, 21, HostileWorld),
        ],
    ),
)
def test_defect_that_oz_once_had_is_found(defect, first, kind, monkeypatch):
    defect(monkeypatch)
    assert any(run(seed, kind=kind) is not None for seed in range(first, first + MOST))


@pytest.mark.heavy
def test_members_that_begin_at_0_again_are_found_where_what_was_for_them_is_lost(monkeypatch):
    def violates(seed):
        return run(seed, lose_what_is_for_members(World(seed))) is not None

    assert not violates(0)
    forget_members(monkeypatch)
    assert violates(0)


@pytest.mark.heavy
def test_looking_only_at_checks_is_found_where_two_part_beside_a_name_server_that_was_away(monkeypatch):
    faults = [
        NodeFault(4.6, "kill_server", ("lab", "desk"), 2.0),
        NodeFault(6.0, "cut", ("lab", "desk"), 4.0),
        NodeFault(6.6, "cut", ("desk", "nameserver"), 4.0),
    ]

    def violates(seed):
        return run(seed, faults, kind=NodeWorld) is not None

    assert not any(map(violates, range(2)))
    compare_checks_only(monkeypatch)
    assert any(map(violates, range(2)))
