"""The classes for threads and for asyncio have the same public names, arguments and results."""

import inspect

import oz
import oz.asyncio
from support.cases import each

TWINS = {
    "Publisher": (oz.Publisher, oz.asyncio.Publisher),
    "Subscriber": (oz.Subscriber, oz.asyncio.Subscriber),
    "Subscription": (oz.Subscription, oz.asyncio.Subscription),
    "Node": (oz.Node, oz.asyncio.Node),
}

# It takes asynchronous iterables too.
OTHER_ARGUMENTS = {"Publisher.publish_many", "Node.publish_many"}
# Methods that return an awaitable and are no coroutine functions.
OTHER_RESULTS = {"close"}


def public(cls):
    return {
        name
        for base in cls.__mro__
        if base.__module__.startswith("oz.")
        for name in vars(base)
        if not name.startswith("_")
    }


def methods(twin):
    """Return the methods that both twins have: name, synchronous method, asyncio method."""
    sync, of_loop = TWINS[twin]
    for name in sorted(public(sync) & public(of_loop)):
        if callable(getattr(sync, name)):
            yield name, getattr(sync, name), getattr(of_loop, name)


@each("twin", TWINS)
def test_twins_have_the_same_public_names(twin):
    sync, of_loop = TWINS[twin]
    assert public(sync) == public(of_loop)


@each("twin", TWINS)
def test_twins_have_the_same_parameters(twin):
    pairs = [("__init__", *(item.__init__ for item in TWINS[twin])), *methods(twin)]
    differing = {
        f"{twin}.{name}"
        for name, *both in pairs
        if len({str(inspect.signature(address).replace(return_annotation=None)) for address in both}) > 1
    }
    assert differing <= OTHER_ARGUMENTS


@each("twin", TWINS)
def test_twins_return_the_same_where_one_is_awaited(twin):
    differing = {
        name
        for name, mine, its in methods(twin)
        if inspect.iscoroutinefunction(its)
        and inspect.signature(mine).return_annotation != inspect.signature(its).return_annotation
    }
    assert differing - OTHER_RESULTS == set()
