"""Many cases in one test.

pytest spends some milliseconds on each test, and each worker process collects all tests. Thousands of cases
that take microseconds each are therefore one test.
"""

import functools
import inspect

import pytest


def each(names, cases):
    """Run a test once for each case, as `pytest.mark.parametrize` does, but as one test.

    All cases run, also after a failure, and the error lists the failed cases. The cases share the fixtures.

    Args:
        names: of the arguments, with commas between or in a list.
        cases: a tuple of values for each, `pytest.param`, or a value if there is one name.
    """
    several = not isinstance(names, str) or "," in names
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    given = [dict(zip(names, _values(case, several=several), strict=True)) for case in cases]
    assert given, "no cases"

    def decorate(test):
        @functools.wraps(test)
        def run(**fixtures):
            failures = []
            for arguments in given:
                try:
                    test(**fixtures, **arguments)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"the case: {arguments!r}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(given)} cases fail", failures)

        signature = inspect.signature(test)
        left = [item for name, item in signature.parameters.items() if name not in names]
        run.__signature__ = signature.replace(parameters=left)
        return run

    return decorate


def _values(case, *, several):
    if isinstance(case, type(pytest.param())):
        return case.values
    return case if several else (case,)
