"""Each logger for what peers cause writes few lines, however much happens."""

import logging
import re
from pathlib import Path

import pytest

import oz
from oz import logs
from support.sizes import in_suite

NAMES = sorted(
    {
        name
        for path in Path(oz.__file__).parent.rglob("*.py")
        for name in re.findall(r'peer_logger\("([\w.]+)"\)', path.read_text("utf-8"))
    }
)


@pytest.mark.parametrize("name", in_suite(NAMES[:3], NAMES[3:]))
def test_ten_thousand_refusals_in_a_second_are_few_lines(name, caplog):
    caplog.set_level(logging.DEBUG, name)
    logs.forget_rates()
    log = logs.peer_logger(name)
    for number in range(10_000):
        log.warning("refused %d", number)
    assert logs.FIRST <= len(caplog.records) <= logs.FIRST + 3
    assert all(record.name == name for record in caplog.records)
    logs.forget_rates()
