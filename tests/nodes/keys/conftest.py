"""Nodes with keys. The suite runs one shell, because the engine checks keys, and both shells use the same engine."""

import pytest
import zmq

from support.sizes import in_suite


@pytest.fixture(params=in_suite(["sync"], ["asyncio"]))
def kind(request):
    return request.param


@pytest.fixture(autouse=True)
def curve():
    if not zmq.has("curve"):
        pytest.skip("this libzmq has no CURVE")
