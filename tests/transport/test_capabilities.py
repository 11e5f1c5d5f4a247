import shlex
import sys

import pytest
import zmq

import oz
from oz.transport import capabilities, endpoints


@pytest.fixture
def without_pgm(monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda feature: feature != "pgm")


def test_what_pyzmq_cannot_be_asked_about_counts_as_missing():
    assert not capabilities.has("telepathy")
    assert capabilities.has("ipc")


@pytest.mark.parametrize(
    "endpoint", ["epgm://127.0.0.1;239.192.1.1:5555", "pgm://127.0.0.1;239.192.1.1:5555"]
)
@pytest.mark.parametrize("socket", [oz.Publisher, oz.Subscriber, oz.asyncio.Subscriber])
def test_multicast_without_support_names_the_line_that_adds_it(without_pgm, socket, endpoint):
    with pytest.raises(oz.EndpointError) as caught:
        socket(connect=endpoint)
    assert capabilities.pgm_line() in str(caught.value)
    assert endpoint in str(caught.value)


def test_whoever_needs_pgm_gets_the_same_line(without_pgm):
    with pytest.raises(oz.EndpointError) as caught:
        capabilities.require_pgm()
    assert capabilities.pgm_line() in str(caught.value)


def test_another_transport_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda feature: False)
    with pytest.raises(oz.EndpointError, match="no norm transport for 'norm://x'"):
        endpoints.check("norm://x", own_context=True)


def test_the_line_is_for_this_very_python_wherever_it_is(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/opt/my python/bin/python")
    words = shlex.split(capabilities.build_line())
    assert words[:4] == ["PYZMQ_NO_BUNDLE=1", "/opt/my python/bin/python", "-m", "pip"]


@pytest.mark.parametrize(
    ("euid", "prefix"), [(0, "apt-get update && apt-get "), (1000, "sudo apt-get update && sudo ")]
)
def test_the_line_asks_for_sudo_where_that_is_needed(monkeypatch, euid, prefix):
    monkeypatch.setattr("os.geteuid", lambda: euid)
    assert capabilities.pgm_line().startswith(prefix)
