"""A bus on virtual time."""

import pytest

import oz.testing


@pytest.fixture
def bus():
    with oz.testing.Bus(7) as made:
        yield made
