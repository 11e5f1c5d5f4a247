"""Services in general: their close, the end of the program, and their metrics."""

import pytest
import zmq

from oz.cli.service_metrics import service_metrics
from oz.services.bridge import ForwarderStats
from oz.services.proxy import Proxy, ProxyStats
from oz.services.recorder import RecorderStats
from oz.services.replayer import ReplayStats
from support import scripts

FORKING = """
import os, signal, sys, threading, warnings
import oz.program_end
from oz.services import NameServer, Proxy

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
services = [NameServer("tcp://127.0.0.1:*"), Proxy(frontend="tcp://127.0.0.1:*", backend="tcp://127.0.0.1:*")]
for service in services:
    threading.Thread(target=service.run, daemon=True).start()
child = os.fork()
if not child:
    # A wait for the thread of the parent ends with SIGALRM.
    oz.program_end.CLOSE_TIMEOUT = 1e6
    signal.alarm(60)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
for service in services:
    service.close()
"""


def test_the_child_of_a_fork_ends_without_the_services_of_its_parent():
    assert scripts.run("-c", FORKING) == ""


def test_a_proxy_of_libzmq_that_fails_ends_run_with_its_error(monkeypatch):
    def fail(*_):
        raise zmq.ZMQError(zmq.ENOTSUP)

    with Proxy(frontend="tcp://127.0.0.1:*", backend="tcp://127.0.0.1:*") as proxy:
        monkeypatch.setattr(zmq, "proxy_steerable", fail)
        with pytest.raises(zmq.ZMQError):
            proxy.run()


@pytest.mark.parametrize(
    ("stats", "gauges"),
    [
        (ForwarderStats(), {"interests"}),
        (RecorderStats(), {"is_full"}),
        (ReplayStats(), set()),
        # The proxy counts sent subscriptions, and not current subscriptions.
        (ProxyStats(), set()),
    ],
)
def test_values_of_now_are_gauges_and_counts_are_counters(stats, gauges):
    class Kind:
        pass

    service = Kind()
    service.stats = stats
    types = dict(
        line.split()[2:] for line in service_metrics(service).splitlines() if line.startswith("# TYPE")
    )
    names = vars(stats)
    assert types == {
        f"oz_kind_{name}{'' if name in gauges else '_total'}": "gauge" if name in gauges else "counter"
        for name in names
    }
