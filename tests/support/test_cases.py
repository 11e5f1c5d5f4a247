"""A test of many cases runs all of them, and says which ones failed."""

import pytest

from support.cases import each


def run(test):
    with pytest.raises(BaseExceptionGroup) as caught:
        test()
    return caught.value


def test_all_cases_run_and_each_that_fails_is_named():
    seen = []

    @each("left, right", [(1, 1), (1, 2), pytest.param(2, 2, id="equal"), (3, 4)])
    def test(left, right):
        seen.append((left, right))
        assert left == right

    failed = run(test)
    assert seen == [(1, 1), (1, 2), (2, 2), (3, 4)]
    assert "2 of 4 cases fail" in str(failed)
    assert [exception.__notes__[-1] for exception in failed.exceptions] == [
        "the case: {'left': 1, 'right': 2}",
        "the case: {'left': 3, 'right': 4}",
    ]
