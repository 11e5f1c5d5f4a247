"""Pytest plugin of oz: the fixture `oz_bus`, and support for `async def` tests that use it.

pytest loads this module in every environment with oz. The module is outside of the package `oz`, so that oz is imported
only when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import oz.testing


@pytest.fixture
def oz_bus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[oz.testing.Bus]:
    """Return a bus in one process, `oz.testing.Bus`. When the test ends, the members of the bus are closed.

    The seed is 0, or the parameter of the test: `@pytest.mark.parametrize("oz_bus", range(100), indirect=True)`.
    During the test, `Node`, `Publisher` and `Subscriber` of `oz` and `oz.asyncio` create members of this bus. Therefore
    the test can call code that creates these objects itself. An `async def` test runs in the loop of the bus.
    """
    import oz.asyncio
    from oz.testing import Bus

    with Bus(getattr(request, "param", 0)) as bus:
        for name in ("Node", "Publisher", "Subscriber"):
            create = getattr(bus, name.lower())
            monkeypatch.setattr(oz.asyncio, name, create)
            monkeypatch.setattr(oz, name, _blocking(bus, create))
        yield bus


def _blocking(bus: oz.testing.Bus, create: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: bus.blocking(create(*arguments, **options))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in the loop of its bus, if no other plugin runs the test."""
    bus: Any = pyfuncitem.funcargs.get("oz_bus")
    # pytest-asyncio replaces the function of a test with a function that is not async. Tests of anyio have a marker.
    if bus is None or not iscoroutinefunction(pyfuncitem.obj) or pyfuncitem.get_closest_marker("anyio"):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    bus.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
