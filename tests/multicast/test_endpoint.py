"""Multicast endpoints are read, and refused, without any libzmq."""

import pytest

from oz.multicast.endpoints import parse
from support.cases import each


def test_an_interface_is_named_by_its_name_or_by_its_address():
    named, addressed = parse("epgm://lo;239.192.7.9:5555"), parse("epgm://127.0.0.1;239.192.7.9:5555")
    assert str(named) == str(addressed) == "epgm://127.0.0.1;239.192.7.9:5555"


@each("address", ["0.0.0.0", "127.0.0.2", "255.255.255.255", "127.1", "10.99.99.99"])
def test_address_without_an_interface_is_refused(address):
    # libzmq has nothing to say of the first two but "Invalid argument".
    with pytest.raises(ValueError, match=r"which this host does not have; it has .*\blo\b.*127\.0\.0\.1"):
        parse(f"epgm://{address};239.192.7.9:5555")
