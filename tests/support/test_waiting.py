"""Waits end when a condition holds, and show its parts when it does not."""

from types import SimpleNamespace

import pytest

from support.waiting import until

HERE = SimpleNamespace(count=3, kinds=["a", "b"])


def test_the_value_that_ended_the_wait_is_given():
    looks = iter([0, None, [], "so"])
    assert until(lambda: next(looks)) == "so"


def test_who_gives_up_says_what_the_parts_of_the_condition_are():
    one, expected = SimpleNamespace(stats=SimpleNamespace(sent=4, lost={"a": 1})), 5
    with pytest.raises(AssertionError) as caught:
        until(
            lambda most=7: (one.stats.sent > expected and one.stats.lost["a"] < most) or len(HERE.kinds) > 2,
            0.01,
        )
    said = str(caught.value)
    assert said.startswith("still not so after 0.01 s: False\n")
    for line in ("one.stats.sent is 4", "one.stats.sent > expected is False", "len(HERE.kinds) is 2"):
        assert f"\n    {line}" in said
    assert '\n    one.stats.lost["a"] < most is True' in said


def test_what_has_no_value_alone_is_left_out():
    with pytest.raises(AssertionError) as caught:
        until(lambda: all(len(one) > 1 for one in HERE.kinds), 0.01)
    first, *parts = str(caught.value).splitlines()
    assert first == "still not so after 0.01 s: False"
    whole = "all(len(one) > 1 for one in HERE.kinds) is False"
    assert [part.strip() for part in parts] == ["HERE.kinds is ['a', 'b']", whole]


def test_a_function_is_asked_once_more_by_nobody():
    looks = []

    def so():
        looks.append(None)
        return 0

    with pytest.raises(AssertionError, match=r"^still not so after 0 s: 0$"):
        until(so, 0)
    assert len(looks) == 1
