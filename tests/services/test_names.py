"""The public names of `oz.services`."""

import pytest

import oz
import oz.services
from support.cases import each


@each(
    "ways",
    [
        {},
        {"receive": "epgm://127.0.0.1;239.192.1.1:5555"},
        {"send": "epgm://127.0.0.1;239.192.1.1:5555"},
        {"subscribers": "ipc:///x", "receive": "epgm://127.0.0.1;239.192.1.1:5", "publishers": "ipc:///y"},
    ],
)
def test_gateway_refuses_one_side_without_the_other(ways):
    with pytest.raises(oz.ConfigurationError, match=r"give receive|give subscribers|needs publishers"):
        oz.services.Gateway(**ways)
