"""tools/prose.py finds what docs/style.md forbids, and allows the rest. `tox -e docs` runs it over oz."""

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("yaml", reason="an extra: ozmq[docs]")


@pytest.fixture(scope="module")
def prose():
    spec = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rules(prose):
    return [prose.Rule(path) for path in sorted(prose.STYLES.glob("*.yml"))]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("What finds no room waits.", "Clauses"),
        ("Give the origin of a publisher.", "Verbs"),
        ("Have those who wait look again.", "Verbs"),
        ("Messages that were let go.", "Verbs"),
        ("The oldest is dropped; it lets go of the rest.", "Verbs"),
        ("The streams of a subscriber that has its publishers filter.", "Filtering"),
        ("An endpoint that is no endpoint.", "Riddles"),
        ("Tell whoever waits.", "Person"),
        ("The socket will be closed.", "Tense"),
        ("The intake of a subscriber.", "Words"),
        (" ".join(["word"] * 31), "Sentences"),
        ("One; two; three.", "Semicolons"),
        ("Return the origin of a publisher.", None),
        ("Whether it is closed.", None),
        ("One; two. Three; four. --five has six; seven.", None),
    ],
)
def test_each_rule_finds_what_it_is_for(rules, text, rule):
    found = {one.name for one in rules if list(one.check(text))}
    assert found == ({f"Oz.{rule}"} if rule else set())


def test_the_texts_of_errors_are_found(prose):
    tree = ast.parse('def f():\n    raise ValueError(f"n is {n}, " "not 0")\n')
    assert [one.text for one in prose.errors(Path("m.py"), tree)] == ["n is VALUE, not 0"]
