"""The public names of `oz.services`."""

import pytest

import oz
import oz.services
from support.cases import each


@each("name", oz.services.__all__)
def test_public_name_is_imported_at_its_first_access(name):
    assert getattr(oz.services, name).__name__ == name


def test_gateway_refuses_to_start_without_an_endpoint():
    with pytest.raises(oz.ConfigurationError, match="give receive=, send= or both"):
        oz.services.Gateway()
