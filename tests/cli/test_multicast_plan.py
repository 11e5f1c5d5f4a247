import json
import re

import pytest

import oz as library


def test_it_prints_the_line_to_paste_first(oz):
    result = oz("multicast", "plan", "--rate", "500", "--size", "200", "--outage", "2")
    assert result.exit_code == 0
    options = eval(result.stdout.splitlines()[0], {"oz": library})
    assert isinstance(options, library.Multicast)
    assert options.stale_after >= 2 + 5
    for name in ("packets", "on the wire", "rate_kbps", "recovery", "memory", "longer", "switches"):
        assert re.search(rf"^{name} ", result.stdout, re.MULTILINE)


def test_json_has_the_same_numbers(oz):
    arguments = ("multicast", "plan", "--rate", "400", "--size", "200", "--outage", "2", "--publishers", "3")
    data = json.loads(oz(*arguments, "--json").stdout)
    assert data["line"] == oz(*arguments).stdout.splitlines()[0]
    assert (
        data["multicast"]["rate_kbps"] * 125 * data["multicast"]["recovery"] >= data["window_packets"] * 1500
    )
    assert data["total_kbps"] == pytest.approx(3 * data["wire_kbps"])
    assert data["is_repaired"] is True
