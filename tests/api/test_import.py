"""Modules that `import oz` loads, and modules that load later: programs that give up rights rely on it."""

import importlib

import pytest

from support import scripts

UNNEEDED = (
    "zmq",
    "regex",
    "msgpack",
    "asyncio",
    "oz.asyncio",
    "oz.publisher",
    "oz.subscriber",
    "oz.transport",
    "oz.wire",
)


def test_import_of_oz_loads_no_modules_of_sockets():
    script = f"import sys, oz; print([name for name in {UNNEEDED!r} if name in sys.modules])"
    assert scripts.run("-c", script) == "[]\n"


def test_a_name_loads_only_the_modules_that_it_needs():
    script = "import sys; from oz import Pattern; print('oz.subjects' in sys.modules, 'zmq' in sys.modules)"
    assert scripts.run("-c", script) == "True False\n"


def test_use_of_imported_sockets_loads_no_module():
    script = """
import sys
from oz import Publisher, Subscriber
loaded = set(sys.modules)
with Publisher("tcp://127.0.0.1:*") as pub, Subscriber(pub.endpoint, filtering="prefix") as plain:
    with Subscriber(pub.endpoint, filtering="publisher") as sub:
        plain.subscribe("md.*.x")
        sub.subscribe("md.*.x")
        sub.wait_ready(timeout=60)
        pub.wait_for_subscribers("md.1.x", count=2, timeout=60)
        pub.publish("md.1.x", b"y", headers={"a": "b"})
        print(plain.receive(timeout=60).payload, sub.receive(timeout=60).payload)
print(sorted(set(sys.modules) - loaded))
"""
    assert scripts.run("-c", script) == "b'y' b'y'\n[]\n"


def test_services_list_the_names_that_they_load_on_access():
    services = importlib.import_module("oz.services")
    assert set(services.__all__) <= set(dir(services))
    assert [name for name in services.__all__ if not hasattr(services, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Cheese'"):
        services.Cheese  # noqa: B018
