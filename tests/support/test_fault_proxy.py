"""The fault proxy closes all its connections."""

import gc
import socket

from support.fault_proxy import FaultProxy


def test_closing_leaves_nothing_open_of_those_who_have_just_connected():
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        endpoint = f"tcp://127.0.0.1:{upstream.getsockname()[1]}"
        for _ in range(30):
            proxy = FaultProxy(endpoint)
            port = int(proxy.endpoint.rpartition(":")[2])
            callers = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
            # A connection that is left open is a ResourceWarning, and so an error.
            proxy.close()
            for caller in callers:
                caller.close()
    gc.collect()
