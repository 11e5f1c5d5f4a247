"""The README says which function of which file each step from pattern to delivery is."""

from functools import reduce
from importlib import import_module

import pytest

from docs.markdown_blocks import ROOT

STEPS = [
    ("oz/subjects/pattern.py", "compile"),
    ("oz/subjects/dialects/tokens.py", "prefix"),
    ("oz/subjects/dialects/tokens.py", "to_regex"),
    ("oz/subjects/dialects/globs.py", "prefixes"),
    ("oz/subjects/prefixes/literal.py", "literal_prefixes"),
    ("oz/transport/subscriber/front.py", "SubscriberFront.subscribe"),
    ("oz/protocol/subscriber/receiver.py", "Receiver.accept"),
]


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_each_step_of_the_heart_is_where_the_readme_says(path, name):
    module = import_module(path.removesuffix(".py").replace("/", "."))
    function = reduce(getattr, name.split("."), module)
    assert function.__module__ == module.__name__  # defined there, not only imported
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"]({path})" in readme
    assert f"`{name}`" in readme
