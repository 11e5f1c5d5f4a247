from oz.protocol.publisher.batching import Batch, split
from oz.protocol.publisher.send_buffer import Passing
from oz.subjects.pattern import compile as pattern
from oz.wire.batch import parse_body
from oz.wire.keys import DeliveryOptions
from support.cases import each


class Member:
    def __init__(self, text=">"):
        self.delivery = DeliveryOptions(group="g")
        self.wants = pattern(text).matches


class Turns:
    def __init__(self, *members):
        self.members, self._turn = members, -1

    def now(self, _):
        return self

    def pick(self, _):
        self._turn += 1
        return self.members[self._turn % len(self.members)]


class Recipients:
    streams = ()
    is_simple = False

    def __init__(self, *members):
        self.choices = (Turns(*members),)


def accumulated(recipients, subjects):
    return [part for number, subject in enumerate(subjects) for part in (recipients, subject, b"%d" % number)]


def numbers(batch):
    return [int(one) for one in parse_body(batch.body, 0, batch.count)[1::2]]


def test_what_is_refused_joins_what_another_is_still_to_get_in_the_order_of_publishing():
    full, other = Member(), Member()
    mine, others = split(accumulated(Recipients(full, other), [b"a"] * 6), 0)
    passing = Passing([mine, others])
    passing.begin(mine)
    follow, waits, rest = passing.share(mine, [other], must_go=False)
    assert (follow, waits.count, rest.count) == ([], 0, 0)
    assert numbers(others) == [0, 1, 2, 3, 4, 5]
    assert others.positions == [0, 1, 2, 3, 4, 5]


def test_what_is_older_than_what_another_was_sent_waits_for_its_member():
    other, full = Member(), Member()
    others, mine = split(accumulated(Recipients(other, full), [b"a", b"a", b"a", b"b", b"a", b"a"]), 0)
    passing = Passing([others, mine])
    for one in (others, mine):
        passing.begin(one)
    passing.note(others)
    [follow], waits, rest = passing.share(mine, [other], must_go=False)
    assert numbers(others) == [0, 2, 4]
    # 5 is behind all that the other has; nothing on b was sent to it.
    assert (follow.stream, numbers(follow)) == (other, [3, 5])
    assert (waits.stream, numbers(waits)) == (full, [1])
    assert rest.count == 0


def test_another_member_that_is_not_ahead_takes_what_one_that_is_may_not():
    ahead, full, idle = Member(), Member(), Member()
    first, mine = split(accumulated(Recipients(ahead, full), [b"a"] * 4), 0)
    passing = Passing([first, mine])
    for one in (first, mine):
        passing.begin(one)
    passing.note(first)
    follow, waits, _ = passing.share(mine, [ahead, idle], must_go=False)
    assert {one.stream: numbers(one) for one in follow} == {idle: [1], ahead: [3]}
    assert waits.count == 0


def test_what_nobody_else_wants_is_left():
    full, other = Member(), Member("x.*")
    mine, others = split(accumulated(Recipients(full, other), [b"a", b"x.1", b"x.2", b"x.3"]), 0)
    passing = Passing([mine, others])
    passing.begin(mine)
    _, waits, rest = passing.share(mine, [other], must_go=False)
    assert (waits.count, numbers(rest)) == (0, [0])
    assert numbers(others) == [1, 2, 3]


def test_what_is_refused_a_second_time_keeps_the_order_of_what_was_handed_over():
    full, second, last = Member(), Member(), Member()
    mine = Batch(full)
    for place, subject in enumerate([b"b", b"a", b"x", b"a"]):
        if place != 2:
            mine.put(place, [subject, b"%d" % place])
    ahead = Batch(second)
    ahead.put(2, [b"a", b"2"])
    passing = Passing([ahead, mine])
    for one in (ahead, mine):
        passing.begin(one)
    passing.note(ahead)
    first, other = passing.share(mine, [second, last], must_go=False)[0]
    assert (first.stream, numbers(first)) == (second, [0, 3])
    assert (other.stream, numbers(other)) == (last, [1])
    passing.begin(first)
    assert passing.share(first, [last], must_go=False)[0] == []
    assert numbers(other) == [0, 1, 3]


@each("must_go", [False, True])
def test_what_a_member_that_is_gone_leaves_goes_to_another_even_out_of_order(must_go):
    other, gone = Member(), Member()
    others, mine = split(accumulated(Recipients(other, gone), [b"a"] * 3), 0)
    passing = Passing([others, mine])
    for one in (others, mine):
        passing.begin(one)
    passing.note(others)
    follow, waits, _ = passing.share(mine, [other], must_go=must_go)
    assert ([numbers(one) for one in follow], waits.count) == (([[1]], 0) if must_go else ([], 1))


def test_what_waits_in_a_large_frame_has_a_place_too():
    full, other = Member(), Member()
    batch = Batch(full).whole(b"", [b"a", b"0"], (0,))
    [follow], _, _ = Passing().share(batch, [other], must_go=False)
    assert numbers(follow) == [0]
