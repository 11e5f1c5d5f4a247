"""What tests of multicast need, and why they are skipped where it is missing."""

import pytest
import zmq

from oz.transport import endpoints
from oz.transport.errors import EndpointError
from support import network


def _no_pgm():
    try:
        endpoints.check("epgm://127.0.0.1;239.192.7.1:5555", own_context=True)
    except EndpointError as error:
        return str(error)
    return None


pgm = pytest.mark.skipif(not zmq.has("pgm"), reason=_no_pgm() or "")

_why = network.missing() if zmq.has("pgm") else None
namespaces = pytest.mark.skipif(_why is not None, reason=_why or "")
