import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.protocol.subscriber import declarations
from oz.protocol.subscriber.declarations import (
    AT_ONCE,
    BACK_AT_ONCE,
    FIRST_PATIENCE,
    GREETING,
    LONGEST_PATIENCE,
    MOST_SMALL,
    Declarations,
)
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.declared import declare
from oz.wire.keys import CHUNK_SIZE, DeliveryOptions, parse_declaration

STREAM = bytes(range(16))


def subscription(*texts):
    one = Subscribed([oz.compile(text) for text in texts], None, lambda _: None)
    return one, [declare(pattern) for pattern in one.patterns]


@pytest.fixture
def mine():
    return Declarations(STREAM, DeliveryOptions())


def add(mine, *texts, last_value=False):
    one, patterns = subscription(*texts)
    return one, mine.add(one, patterns, last_value=last_value)


def texts(*keys):
    return sorted(one.text.decode() for key in keys for one in parse_declaration(key).patterns)


def standing(mine):
    return texts(*(chunk.key for chunk in mine.chunks.values()))


def owed(numbers):
    """Chunks that a publisher has not answered which was there from the beginning."""
    return dict.fromkeys(numbers, 0.0)


def test_first_subscriptions_are_declared_one_by_one_and_the_rest_together(mine):
    at_once = [add(mine, f"n.{number}")[1].wanted for number in range(AT_ONCE)]
    assert [len(keys) for keys in at_once] == [1] * AT_ONCE
    assert not any(add(mine, f"more.{number}")[1].wanted for number in range(50))
    assert mine.is_collecting
    (key,) = mine.flush().wanted
    assert texts(key) == sorted(f"more.{number}" for number in range(50))
    assert not mine.is_collecting
    assert add(mine, "again")[1].wanted


def test_many_patterns_take_few_chunks_of_a_bounded_size(mine):
    _, changes = add(mine, *(f"p.{number}.*" for number in range(10_000)))
    assert len(changes.wanted) < 50
    assert max(map(len, changes.wanted)) <= CHUNK_SIZE + 64
    assert len(texts(*changes.wanted)) == 10_000


def test_removing_a_subscription_declares_the_rest_of_its_chunk_anew(mine):
    for number in range(AT_ONCE):
        add(mine, f"n.{number}")
    goes, _ = add(mine, "goes", "too")
    add(mine, "stays")
    (old,) = mine.flush().wanted
    changes = mine.remove(goes)
    assert texts(*changes.wanted) == ["stays"]
    assert changes.dropped == [old]
    assert parse_declaration(changes.wanted[0]).chunk > parse_declaration(old).chunk


def test_removing_what_is_still_gathered_declares_nothing(mine):
    for number in range(AT_ONCE):
        add(mine, f"n.{number}")
    goes, _ = add(mine, "goes")
    assert not mine.remove(goes).wanted
    assert not mine.flush().wanted


def test_many_subscriptions_are_taken_back_together(mine):
    for number in range(AT_ONCE):
        add(mine, f"n.{number}")
    gone = [add(mine, f"goes.{number}")[0] for number in range(50)]
    add(mine, "stays")
    mine.flush()
    assert [len(mine.remove(one).dropped) for one in gone[:BACK_AT_ONCE]] == [1] * BACK_AT_ONCE
    assert not any(mine.remove(one).dropped for one in gone[BACK_AT_ONCE:])
    changes = mine.tidy(mine.chunks)
    assert (texts(*changes.wanted), len(changes.dropped)) == (["stays"], 1)
    assert not mine.tidy(mine.chunks).wanted


def test_chunks_that_shrank_to_nothing_are_taken_back_only(mine):
    gone = [add(mine, f"goes.{number}")[0] for number in range(AT_ONCE)]
    for one in gone:
        mine.remove(one)
    changes = mine.tidy(mine.chunks)
    assert (len(changes.wanted), len(changes.dropped)) == (0, AT_ONCE - BACK_AT_ONCE)
    assert not mine.chunks


def add_one_by_one(mine, count):
    return [
        key for number in range(count) for key in add(mine, f"n.{number}")[1].wanted + mine.flush().wanted
    ]


def test_many_small_chunks_are_put_together(mine):
    keys = add_one_by_one(mine, MOST_SMALL)
    assert not mine.tidy(mine.chunks).wanted
    keys += add(mine, "one.more")[1].wanted
    changes = mine.tidy(mine.chunks)
    (key,) = changes.wanted
    assert texts(key) == texts(*keys)
    assert sorted(changes.dropped) == sorted(keys)
    assert not mine.tidy(mine.chunks).wanted


def test_what_is_not_settled_is_left_by_itself(mine):
    add_one_by_one(mine, MOST_SMALL + 10)
    refused = min(mine.chunks)
    changes = mine.tidy(mine.chunks.keys() - {refused})
    assert len(mine.chunks) == 2
    assert refused in mine.chunks
    assert texts(*changes.wanted) == sorted(f"n.{number}" for number in range(1, MOST_SMALL + 10))


def test_thousands_of_single_subscriptions_stand_in_few_chunks(mine):
    declared = 0
    for number in range(5_000):
        _, changes = add(mine, f"number.{number}.*")
        for part in (changes, mine.flush(), mine.tidy(mine.chunks)):
            declared += len(texts(*part.wanted))
    assert len(mine.chunks) < 120
    assert declared < 5 * 5_000
    assert len(standing(mine)) == 5_000


def test_last_values_are_never_put_together(mine):
    for number in range(2 * MOST_SMALL):
        add(mine, f"n.{number}", last_value=True)
    assert not mine.tidy(mine.chunks).wanted
    assert len(mine.chunks) == 2 * MOST_SMALL


def test_what_stays_unanswered_is_declared_again_with_growing_patience(mine):
    add(mine, "a")
    add(mine, "b")
    now, pauses, last = 100.0, [], None
    for _ in range(1_500):
        changes = mine.renew(owed(mine.chunks), now)
        if changes.wanted:
            (key,) = changes.wanted
            assert texts(key) == ["a", "b"] == standing(mine)
            assert len(changes.dropped) == (2 if last is None else 1)
            pauses.append(now - (last or 100.0))
            last = now
        now += 0.1
    assert pauses[0] == pytest.approx(FIRST_PATIENCE, abs=0.11)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(LONGEST_PATIENCE, abs=0.25)


def test_a_publisher_that_takes_half_a_minute_for_an_answer_is_not_asked_for_ever(mine):
    add(mine, "a")
    took, asked_at = 30.0, {}
    for tenth in range(3_000):
        now, answered = tenth / 10, {number for number, at in asked_at.items() if tenth / 10 - at >= took}
        for number in mine.chunks:
            asked_at.setdefault(number, now)
        if mine.chunks.keys() <= answered:
            return
        mine.renew(owed(mine.chunks.keys() - answered), now)
    raise AssertionError("every answer was to what did not stand any more")


def test_a_publisher_that_has_only_just_come_is_not_late(mine):
    add(mine, "a")
    mine.renew(owed([1]), 0.0)
    come_at = 100.0
    assert not mine.renew({1: come_at}, come_at + FIRST_PATIENCE / 2).wanted
    mine.greet(come_at)
    assert mine.next_deadline({1: come_at}) == come_at + FIRST_PATIENCE
    assert mine.renew({1: come_at}, come_at + FIRST_PATIENCE).wanted


def test_patience_is_what_it_was_given_until_it_grows():
    mine = Declarations(bytes(16), DeliveryOptions(), patience=5.0)
    add(mine, "a")
    mine.renew(owed([1]), 0.0)
    assert not mine.renew(owed([1]), 4.9).wanted
    assert mine.renew(owed([1]), 5.0).wanted
    mine.renew(owed([2]), 5.0)
    assert not mine.renew(owed([2]), 14.9).wanted
    assert mine.renew(owed([2]), 15.0).wanted


def test_what_asked_for_last_values_is_not_declared_together_with_others(mine):
    for text in ("a", "b"):
        add(mine, text)
        add(mine, f"last.{text}", last_value=True)
    mine.renew(owed(mine.chunks), 0)
    keys = mine.renew(owed(mine.chunks), 10).wanted
    found = {(tuple(texts(key)), parse_declaration(key).wants_last_value) for key in keys}
    assert found == {(("a", "b"), False), (("last.a",), True), (("last.b",), True)}


def test_a_chunk_that_is_gone_is_not_declared_again(mine):
    one, _ = add(mine, "a")
    gone = owed(mine.chunks)
    mine.renew(gone, 0)
    mine.remove(one)
    assert not mine.renew(gone, 100).wanted


def test_a_stream_shows_itself_again_and_again_by_an_empty_chunk(mine):
    assert not mine.greet(0).wanted
    assert not mine.greet(GREETING - 0.1).wanted
    first = mine.greet(GREETING)
    assert not first.dropped
    assert not mine.greet(2 * GREETING - 0.1).wanted
    second = mine.greet(2 * GREETING)
    assert second.dropped == first.wanted
    found = [parse_declaration(changes.wanted[0]) for changes in (first, second)]
    assert [one.patterns for one in found] == [(), ()]
    assert found[0].chunk < found[1].chunk
    # Nobody's answer to it is waited for.
    assert not mine.chunks
    assert mine.leave().dropped == second.wanted


def test_goodbye_takes_everything_back(mine):
    keys = [key for text in "abc" for key in add(mine, text)[1].wanted]
    changes = mine.leave()
    (goodbye,) = map(parse_declaration, changes.wanted)
    assert goodbye.is_closing
    assert not goodbye.patterns
    assert changes.dropped == keys
    assert not mine.chunks


@given(
    st.lists(st.sampled_from(["add", "remove", "flush", "renew", "greet", "tidy"]), max_size=60), st.randoms()
)
def test_keys_asked_for_say_what_is_subscribed_whatever_happens(steps, dice):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(declarations, "AT_ONCE", 3)
        patch.setattr(declarations, "BACK_AT_ONCE", 2)
        patch.setattr(declarations, "MOST_SMALL", 4)
        patch.setattr(declarations, "CHUNK_SIZE", 60)
        patch.setattr(declarations, "SMALL", 30)
        mine = Declarations(STREAM, DeliveryOptions())
        asked, members, now, numbers = set(), [], 0.0, set()

        def ask(changes):
            for key in changes.wanted:
                number = parse_declaration(key).chunk
                assert number not in numbers
                numbers.add(number)
                asked.add(key)
            for key in changes.dropped:
                asked.remove(key)

        for place, step in enumerate(steps):
            now += 4
            if step == "add":
                one, changes = add(mine, *(f"n.{dice.randrange(5)}" for _ in range(2)), f"own.{place}")
                members.append(one)
                ask(changes)
            elif step == "remove" and members:
                ask(mine.remove(members.pop(dice.randrange(len(members)))))
            elif step == "flush":
                ask(mine.flush())
            elif step == "renew":
                some = [number for number in mine.chunks if dice.random() < 0.5]
                ask(mine.renew(owed(some), now))
            elif step == "greet":
                ask(mine.greet(now))
            elif step == "tidy":
                ask(mine.tidy({number for number in mine.chunks if dice.random() < 0.8}))
        ask(mine.flush())
        ask(mine.tidy(()))
        wanted = {pattern.text for one in members for pattern in one.patterns}
        assert set(texts(*asked)) == wanted
        assert set(standing(mine)) == wanted
        ask(mine.leave())
        assert [parse_declaration(key).is_closing for key in asked] == [True]


def test_it_says_when_something_is_due(mine):
    add(mine, "a.*")
    # It reads no clock: first of all somebody looks.
    assert mine.next_deadline(owed([1])) == -math.inf
    mine.renew(owed([1]), 100.0)
    mine.greet(100.0)
    assert mine.next_deadline(owed([1])) == 100.0 + FIRST_PATIENCE
    assert mine.next_deadline(owed([])) == 100.0 + GREETING
    mine.renew(owed([1]), mine.next_deadline(owed([1])))
    # Declared again, as chunk 2, which somebody has to look at in turn.
    assert mine.next_deadline(owed([2])) == -math.inf


def test_what_is_collected_or_has_shrunk_is_due_at_once(mine):
    subscriptions = [add(mine, f"a{number}.*")[0] for number in range(AT_ONCE)]
    mine.greet(100.0)
    assert mine.next_deadline(owed([])) == 100.0 + GREETING
    add(mine, "b")
    assert mine.next_deadline(owed([])) == -math.inf
    mine.flush()
    for one in subscriptions[: BACK_AT_ONCE + 1]:
        mine.remove(one)
    assert mine.next_deadline(owed([])) == -math.inf
    mine.tidy([])
    assert mine.next_deadline(owed([])) == 100.0 + GREETING
