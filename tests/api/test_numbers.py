"""Durations and sizes of the public API: another value is refused, and the error names argument and value."""

import asyncio
import inspect
import re
import sys
import tempfile
from contextlib import AsyncExitStack
from math import nan
from pathlib import Path
from unittest.mock import patch

import pytest

import oz
import oz.asyncio
import oz.services
import oz.testing

pytest.importorskip("pyarrow")

MODULES = ("oz", "oz.asyncio", "oz.services", "oz.testing")

WRONG = ("5", b"5", [5], 5j, True, nan)
"""Values that are no numbers. `True` is an int to Python, and a mistake here."""

MADE_BY_OZ = re.compile(
    r"\w*(Stats|Status|Subscription|Info|Snapshot|Times)|Event|Peer|Configuration|Gap|\w*Message\w*|Setting"
)
"""Classes whose objects only oz creates: oz sets their numbers, and does not check them."""

OF_PYZMQ = {"linger", "flags", "events", "nbytes", "option", "socket_type"}
"""Numbers that pyzmq means in its own way; so is the `timeout` of `poll`, but for `oz.Poller`'s."""

NO_SIZE = {"seed", "sequence", "position", "gap", "time_ns"}

BESIDE = {
    "full_timeout": {"on_full": "block"},
    "concurrency": {"handler": print},
    "max_pending": {"overflow": "drop_oldest"},
}
"""Arguments that a number needs beside it."""

WHOLE = {"oz.services.Proxy": {"frontend": "tcp://127.0.0.1:*", "backend": "tcp://127.0.0.1:*"}}
"""Arguments without which a class refuses to start, although each of them has a default."""

REQUIRED = {
    "subject": "a.b",
    "pattern": "a.b",
    "patterns": "a.b",
    "nameserver": "tcp://127.0.0.1:1",
    "journal": None,
    "publisher": None,
    "bind": "tcp://127.0.0.1:*",
    "directory": "",
    "source": "tcp://127.0.0.1:1",
}


def numbers():
    """Return each numeric parameter of the public callables: path of the owner, name of the callable, own name."""
    for module in MODULES:
        for name in sys.modules[module].__all__:
            found = getattr(sys.modules[module], name)
            if inspect.isfunction(found):
                yield from numbers_of(module, name, found)
            elif isinstance(found, type) and not issubclass(found, Exception):
                for member, function in inspect.getmembers(found, inspect.isfunction):
                    if member == "__init__" and MADE_BY_OZ.fullmatch(name):
                        continue
                    if function.__module__.startswith("oz.") and (
                        member == "__init__" or not member.startswith("_")
                    ):
                        yield from numbers_of(f"{module}.{name}", member, function)


def numbers_of(owner, name, function):
    for parameter in inspect.signature(function).parameters.values():
        words = set(re.findall(r"[\w.]+", str(parameter.annotation)))
        is_number = bool(words & {"int", "float"}) and words <= {"int", "float", "None"}
        if (
            is_number
            and parameter.name not in OF_PYZMQ | NO_SIZE
            and (name != "poll" or owner == "oz.Poller")
        ):
            yield owner, name, parameter.name


ALL = sorted(set(numbers()))


def test_the_table_has_timeouts_and_limits():
    """Annotations fill the table, so that a changed form of annotations could empty it without a failure."""
    assert ("oz.Subscriber", "receive", "timeout") in ALL
    assert ("oz.asyncio.Node", "wait_ready", "timeout") in ALL
    assert ("oz.Options", "__init__", "high_water_mark") in ALL
    assert ("oz.services.Forwarder", "close", "timeout") in ALL
    assert ("oz.testing.Bus", "__init__", "longest") in ALL


async def objects(directory, opened):
    """Make an object of each class whose methods take numbers, by the path of the class."""
    made = {}
    for module in (oz, oz.asyncio):
        node = module.Node(options=oz.NodeOptions(directory=str(directory / "bus")))
        if module is oz.asyncio:
            await opened.enter_async_context(node)
        else:
            opened.enter_context(node)
        publisher, subscriber = module.Publisher("tcp://127.0.0.1:*"), module.Subscriber("tcp://127.0.0.1:1")
        for item in (publisher, subscriber):
            if module is oz.asyncio:
                await opened.enter_async_context(item)
            else:
                opened.enter_context(item)
        made |= {f"{module.__name__}.{type(item).__name__}": item for item in (node, publisher, subscriber)}
        made[f"{module.__name__}.Subscription"] = subscriber.subscribe("a")
    legs = [{"bus": bus, "directory": str(directory / "bus")} for bus in ("a", "b")]
    routed = {"source": "tcp://127.0.0.1:1", "subscriber": {"filtering": "publisher"}}
    # Only the multicast processes need PGM, and they start at the first turn.
    with patch("oz.services.gateway.require_pgm"):
        gateway = oz.services.Gateway(receive="epgm://lo;239.192.1.1:5555", subscribers="tcp://127.0.0.1:*")
    return made | {
        "oz.Poller": oz.Poller(),
        "oz.services.Gateway": opened.enter_context(gateway),
        "oz.services.Forwarder": opened.enter_context(oz.services.Forwarder(legs)),
        "oz.services.NameServer": opened.enter_context(oz.services.NameServer("tcp://127.0.0.1:*")),
        "oz.services.Recorder": opened.enter_context(oz.services.Recorder(directory / "j", "a", **routed)),
        "oz.testing.Bus": opened.enter_context(oz.testing.Bus()),
    }


def callable_of(made, owner, name):
    if name == "__init__":
        module, _, kind = owner.rpartition(".")
        return getattr(sys.modules[module], kind)
    return getattr(made[owner] if owner in made else sys.modules[owner], name)


async def call(function, arguments):
    """Call something, and wait until what it gives has begun."""
    given = function(**arguments)
    if inspect.isasyncgen(given):
        await anext(given)
    elif inspect.isgenerator(given):
        next(given)
    elif inspect.isawaitable(given):
        await given


async def refusals(directory):
    """Return the wrong numbers that are accepted or refused without parameter and value in the message."""
    async with AsyncExitStack() as opened:
        made = await objects(directory, opened)
        for owner, name, number in ALL:
            function = callable_of(made, owner, name)
            missing = [
                parameter
                for parameter in inspect.signature(function).parameters.values()
                if parameter.default is parameter.empty
            ]
            arguments = {item.name: REQUIRED[item.name] for item in missing if item.name in REQUIRED}
            beside = {} if owner == "oz.Delivery" else BESIDE.get(number, {})
            arguments |= beside | (WHOLE.get(owner, {}) if name == "__init__" else {})
            for wrong in WRONG:
                what = f"{owner}.{name}({number}={wrong!r})"
                try:
                    await call(function, arguments | {number: wrong})
                except (TypeError, ValueError) as error:
                    if not (number in str(error) and repr(wrong) in str(error)):
                        yield f"{what}: {type(error).__name__}: {error}"
                except oz.OzError as error:
                    yield f"{what}: {type(error).__name__}: {error}"
                else:
                    yield f"{what}: is taken"


def test_a_wrong_number_is_refused_with_its_parameter_and_value():
    async def collect():
        # Sockets have short paths.
        with tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as directory:
            return [refusal async for refusal in refusals(Path(directory))]

    assert asyncio.run(collect()) == []
