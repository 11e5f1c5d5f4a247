import contextlib

import pytest

from subscriber.publishing import Feed
from support.shells import Blocking, Direct, Stepped


@pytest.fixture
def make(kind):
    """Function that creates subscribers of a shell."""
    shell = Direct() if kind == "sync" else Stepped()
    with contextlib.ExitStack() as stack:
        stack.callback(shell.close)

        def create(*arguments, **options):
            made = Blocking(shell, shell.call(shell.module.Subscriber, *arguments, **options))
            stack.callback(made.close)
            return made

        yield create


@pytest.fixture
def open_feed():
    """Function that creates publishers."""
    with contextlib.ExitStack() as stack:

        def create(*arguments, **options):
            made = Feed(*arguments, **options)
            stack.callback(made.close)
            return made

        yield create


@pytest.fixture
def feed(open_feed):
    return open_feed()
