from types import SimpleNamespace

from oz.protocol.subscriber import receive_buffer
from support.cases import each


def messages(*texts):
    """Messages by subject and number, such as "a1"."""
    return [SimpleNamespace(subject=text[0], text=text) for text in texts]


def emptied(buffer):
    taken = []
    while buffer:
        taken.append(buffer.pop().text)
    assert buffer.pop() is None
    return taken


@each(
    ("overflow", "limit", "left", "dropped"),
    [
        ("conflate", 10, ["a3", "b2"], 3),
        ("drop_oldest", 10, ["a1", "b1", "a2", "b2", "a3"], 0),
        ("drop_oldest", 2, ["b2", "a3"], 3),
        ("drop_newest", 2, ["a1", "b1"], 3),
        ("drop_newest", 5, ["a1", "b1", "a2", "b2", "a3"], 0),
    ],
)
@each("at_once", [1, 2, 5])
def test_what_is_left_and_how_many_went(overflow, limit, left, dropped, at_once):
    buffer = receive_buffer.for_overflow(overflow, limit)
    assert not buffer
    texts = ["a1", "b1", "a2", "b2", "a3"]
    went = sum(buffer.put(messages(*texts[at : at + at_once])) for at in range(0, 5, at_once))
    assert buffer
    assert [message.text for message in buffer] == left
    assert went == dropped
    assert emptied(buffer) == left


def test_all_keeps_nothing_back():
    assert receive_buffer.for_overflow(None, 0) is None


def test_a_subject_keeps_its_place_while_newer_ones_of_it_come():
    buffer = receive_buffer.for_overflow("conflate", 10)
    buffer.put(messages("a1", "b1", "c1"))
    buffer.put(messages("a2"))
    assert buffer.pop().text == "a2"
    buffer.put(messages("a3"))
    assert emptied(buffer) == ["b1", "c1", "a3"]


def test_room_that_was_made_is_used_again():
    buffer = receive_buffer.for_overflow("drop_newest", 2)
    assert buffer.put(messages("a1", "a2", "a3")) == 1
    assert buffer.pop().text == "a1"
    assert buffer.put(messages("a4", "a5")) == 1
    assert emptied(buffer) == ["a2", "a4"]


@each("overflow", ["conflate", "drop_oldest", "drop_newest"])
def test_only_what_is_still_wanted_stays(overflow):
    buffer = receive_buffer.for_overflow(overflow, 3)
    buffer.put(messages("a1", "b1", "c1"))
    buffer.retain([message for message in buffer if message.subject != "b"])
    assert [message.text for message in buffer] == ["a1", "c1"]
    buffer.put(messages("d1"))
    assert emptied(buffer) == ["a1", "c1", "d1"]


@each("at_once", [1, 3])
def test_beyond_the_bound_of_subjects_the_one_that_came_up_first_goes(at_once):
    buffer = receive_buffer.for_overflow("conflate", 2)
    texts = ["a1", "b1", "c1"]
    assert sum(buffer.put(messages(*texts[at : at + at_once])) for at in range(0, 3, at_once)) == 1
    assert emptied(buffer) == ["b1", "c1"]
