"""The pytest plugin of oz: the fixture `oz_bus`.

pytest loads it whenever it runs where oz is installed. It is no part of the package `oz` for that reason:
nothing of oz is imported until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import oz.testing


@pytest.fixture
def oz_bus(request: pytest.FixtureRequest) -> Iterator[oz.testing.Bus]:
    """Give a test a bus in one process, `oz.testing.Bus`, and close what it leaves open.

    Its seed is 0, or what the test is parametrized with: `@pytest.mark.parametrize("oz_bus", range(100),
    indirect=True)`.
    """
    from oz.testing import Bus

    with Bus(getattr(request, "param", 0)) as bus:
        yield bus
