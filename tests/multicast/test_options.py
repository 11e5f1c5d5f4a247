import math

import pytest

import oz
from support.cases import each


@each(
    ("name", "minimum", "maximum", "below", "above"),
    [
        ("rate_kbps", 12, 800_000, 11, 10_000_001),
        ("recovery", 0.1, 600.0, 0.09, 601),
        ("hops", 1, 255, 0, 256),
        ("mtu", 256, 9_216, 255, 9_217),
        ("stale_after", 0.5, 3_600, 0.4, 3_601),
    ],
)
def test_every_number_has_bounds(name, minimum, maximum, below, above):
    for value in (minimum, maximum):
        assert getattr(oz.Multicast(**{name: value}), name) == value
    for value in (below, above):
        with pytest.raises(ValueError, match=name):
            oz.Multicast(**{name: value})


@each("value", [None, "5", True, b"5", [5]])
@each("name", ["rate_kbps", "recovery", "hops", "mtu", "stale_after"])
def test_values_that_are_not_numbers_are_refused(name, value):
    with pytest.raises(oz.ConfigurationError, match=name):
        oz.Multicast(**{name: value})


@each("value", [math.inf, -math.inf, math.nan])
@each("name", ["recovery", "stale_after"])
def test_a_duration_is_a_finite_number(name, value):
    with pytest.raises(ValueError, match=name):
        oz.Multicast(**{name: value})


def test_a_second_has_room_for_a_packet():
    assert oz.Multicast(rate_kbps=72, mtu=9_000).rate_kbps == 72
    with pytest.raises(ValueError, match="make it 72 or more"):
        oz.Multicast(rate_kbps=71, mtu=9_000)


def test_window_has_bounds():
    assert oz.Multicast(rate_kbps=1_000_000, recovery=8.0).window_bytes == 1_000_000_000
    with pytest.raises(ValueError, match="make it shorter"):
        oz.Multicast(rate_kbps=1_000_000, recovery=10.0)


def test_it_cannot_be_changed_and_has_names_for_everything():
    with pytest.raises(AttributeError):
        oz.Multicast().rate_kbps = 5
    with pytest.raises(TypeError):
        oz.Multicast(10_000)
