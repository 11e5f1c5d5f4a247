"""Pytest plugin of oz: the fixture `oz_bus`.

pytest loads this module in each environment with oz. It is not part of the package, so that oz is imported only when
a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import oz.testing


@pytest.fixture
def oz_bus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[oz.testing.Bus]:
    """Return a bus in one process, `oz.testing.Bus`. The end of the test closes its members.

    The seed is 0, or the parameter of the test: `@pytest.mark.parametrize("oz_bus", range(100), indirect=True)`.
    `oz.asyncio.Node` and `oz.Node` create nodes of this bus during the test, for code that creates its nodes itself.
    """
    import oz.asyncio
    from oz.testing import Bus

    with Bus(getattr(request, "param", 0)) as bus:

        def create_blocking(*arguments: Any, **options: Any) -> Any:
            return bus.blocking(bus.node(*arguments, **options))

        monkeypatch.setattr(oz.asyncio, "Node", bus.node)
        monkeypatch.setattr(oz, "Node", create_blocking)
        yield bus
