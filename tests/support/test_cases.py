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


def test_what_pytest_itself_fails_is_a_failure_of_that_case_only():
    seen = []

    @each("text", ["1", "x", "2"])
    def test(text):
        seen.append(text)
        with pytest.raises(ValueError, match="x"):
            int(text)

    assert len(run(test).exceptions) == 2
    assert seen == ["1", "x", "2"]


@each("first", [1, 2])
@each("second", [3, 4])
def test_cases_are_multiplied_and_fixtures_are_given(first, second, tmp_path):
    assert tmp_path.is_dir()
    (tmp_path / f"{first}{second}").touch(exist_ok=False)
    assert (tmp_path / "24").exists() == (first == 2 and second == 4)
