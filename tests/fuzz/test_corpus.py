"""The inputs that fuzzing has kept, each once more: what reached something new, and what crashed."""

from pathlib import Path

import pytest

from fuzz.targets import TARGETS
from support.sizes import size

CORPUS = Path(__file__).with_name("corpus")


@pytest.mark.sized
@pytest.mark.parametrize("target", TARGETS)
def test_inputs_of_the_corpus_are_read_or_refused(target):
    lines = (CORPUS / f"{target}.hex").read_text().splitlines()
    assert lines
    for line in lines[:: size(5, 1)]:
        TARGETS[target](bytes.fromhex(line))
