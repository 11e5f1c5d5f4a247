from types import SimpleNamespace

import pytest

from oz.protocol import keeping


def messages(*texts):
    """Messages by subject and number, such as "a1"."""
    return [SimpleNamespace(subject=text[0], text=text) for text in texts]


def emptied(kept):
    taken = []
    while kept:
        taken.append(kept.pop().text)
    assert kept.pop() is None
    return taken


@pytest.mark.parametrize(
    ("keep", "limit", "left", "let_go"),
    [
        ("latest", 10, ["a3", "b2"], 3),
        ("drop_oldest", 10, ["a1", "b1", "a2", "b2", "a3"], 0),
        ("drop_oldest", 2, ["b2", "a3"], 3),
        ("drop_newest", 2, ["a1", "b1"], 3),
        ("drop_newest", 5, ["a1", "b1", "a2", "b2", "a3"], 0),
    ],
)
@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_what_is_left_and_how_many_went(keep, limit, left, let_go, at_once):
    kept = keeping.make(keep, limit)
    assert not kept
    texts = ["a1", "b1", "a2", "b2", "a3"]
    went = sum(kept.put(messages(*texts[at : at + at_once])) for at in range(0, 5, at_once))
    assert kept
    assert [message.text for message in kept] == left
    assert went == let_go
    assert emptied(kept) == left


def test_all_keeps_nothing_back():
    assert keeping.make("all", 0) is None


def test_a_subject_keeps_its_place_while_newer_ones_of_it_come():
    kept = keeping.make("latest", 10)
    kept.put(messages("a1", "b1", "c1"))
    kept.put(messages("a2"))
    assert kept.pop().text == "a2"
    kept.put(messages("a3"))
    assert emptied(kept) == ["b1", "c1", "a3"]


def test_room_that_was_made_is_used_again():
    kept = keeping.make("drop_newest", 2)
    assert kept.put(messages("a1", "a2", "a3")) == 1
    assert kept.pop().text == "a1"
    assert kept.put(messages("a4", "a5")) == 1
    assert emptied(kept) == ["a2", "a4"]


@pytest.mark.parametrize("keep", ["latest", "drop_oldest", "drop_newest"])
def test_only_what_is_still_wanted_stays(keep):
    kept = keeping.make(keep, 3)
    kept.put(messages("a1", "b1", "c1"))
    kept.retain([message for message in kept if message.subject != "b"])
    assert [message.text for message in kept] == ["a1", "c1"]
    kept.put(messages("d1"))
    assert emptied(kept) == ["a1", "c1", "d1"]


@pytest.mark.parametrize("at_once", [1, 3])
def test_beyond_the_bound_of_subjects_the_one_that_came_up_first_goes(at_once):
    kept = keeping.make("latest", 2)
    texts = ["a1", "b1", "c1"]
    assert sum(kept.put(messages(*texts[at : at + at_once])) for at in range(0, 3, at_once)) == 1
    assert emptied(kept) == ["b1", "c1"]
