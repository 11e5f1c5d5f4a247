"""Publishers in both shells, and scripted subscribers."""

import contextlib

import pytest

from oz.options import Limits, Options
from publisher.scripted import Peer
from support.keyring import Keyring
from support.shells import SHELLS, Blocking


@pytest.fixture
def make(kind):
    """Function that creates publishers. Fields of `Options` and `Limits` may be keyword arguments."""
    with contextlib.ExitStack() as stack:
        shell = SHELLS[kind]()
        stack.callback(shell.close)

        def make(bind="tcp://127.0.0.1:*", **arguments):
            limits = {
                name: arguments.pop(name) for name in [*arguments] if name in Limits.__dataclass_fields__
            }
            fields = {
                name: arguments.pop(name) for name in [*arguments] if name in Options.__dataclass_fields__
            }
            options = Options(limits=Limits(**limits), **fields) if fields or limits else None
            made = Blocking(shell, shell.call(shell.module.Publisher, bind, options=options, **arguments))
            stack.callback(made.close, timeout=0)
            return made

        yield make


@pytest.fixture
def ring(tmp_path, rules):
    """Keys of a feed, a desk and another program, with the permissions of the fixture `rules` of a module."""
    made = Keyring(tmp_path, "feed", "desk", "other")
    made.permit(**rules)
    return made


@pytest.fixture
def pub(make, ring):
    return make(security=ring.security("feed", permissions=True))


@pytest.fixture
def join():
    """Function that connects scripted subscribers, see `Peer`. They are ready, unless `ready` is false."""
    with contextlib.ExitStack() as stack:

        def join(publisher, *texts, ready=True, **options):
            endpoint = publisher if isinstance(publisher, str) else publisher.link_endpoints[0]
            peer = Peer(endpoint, *texts, **options)
            stack.callback(peer.close)
            return peer.ready() if ready else peer

        yield join
