"""The order of tokens, found without Spark, beside all orders; and patterns rewritten for it."""

import itertools
import random

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz
from oz.spark.jobs.explaining.families import Demand, best_order, let_through
from oz.spark.jobs.explaining.rewriting import TokenPattern, reordered


def demand_of(pattern, subjects, depth):
    """What a pattern asks of subjects, counted one by one."""
    literals = TokenPattern.of(oz.compile(pattern)).at_depth(depth)
    sizes = {}
    for subject, size in subjects.items():
        agreed = sum(1 << at for at, token in enumerate(subject.split(".")) if token == literals[at])
        sizes[agreed] = sizes.get(agreed, 0) + size
    return Demand(sum(1 << at for at, token in enumerate(literals) if token is not None), sizes)


def random_case(chance, depth, tokens="abc", count=4):
    subjects = {".".join(chance.choices(tokens, k=depth)): chance.randint(1, 100) for _ in range(30)}
    patterns = []
    while len(patterns) < count:
        pattern = ".".join(chance.choice([*tokens, "*", "*"]) for _ in range(depth))
        if chance.random() < 0.3:
            pattern = ".".join([*pattern.split(".")[: chance.randint(1, depth - 1)], ">"])
        if TokenPattern.of(oz.compile(pattern)):
            patterns.append(pattern)
    return subjects, patterns


@pytest.mark.parametrize("seed", range(40))
def test_no_order_lets_less_through_than_the_one_found(seed):
    chance = random.Random(seed)
    depth = chance.randint(2, 5)
    fixed = chance.choice([0, 0, 1])
    subjects, patterns = random_case(chance, depth)
    demands = [demand_of(pattern, subjects, depth) for pattern in patterns]
    order, is_best = best_order(demands, depth, fixed=fixed)
    assert is_best
    every = itertools.permutations(range(fixed, depth))
    least = min(let_through(demands, (*range(fixed), *rest)) for rest in every)
    assert let_through(demands, order) == least
    assert order[:fixed] == list(range(fixed))


@pytest.mark.parametrize("seed", range(20))
def test_bytes_let_through_are_those_that_the_prefixes_of_rewritten_patterns_pass(seed):
    chance = random.Random(100 + seed)
    subjects, patterns = random_case(chance, 4)
    demands = [demand_of(pattern, subjects, 4) for pattern in patterns]
    order, _ = best_order(demands, 4)
    moved = {reordered(subject, order, "."): size for subject, size in subjects.items()}
    passed = 0
    for pattern in patterns:
        rewritten = oz.compile(TokenPattern.of(oz.compile(pattern)).rewritten(order))
        passed += sum(size for name, size in moved.items() if name.encode().startswith(rewritten.prefixes))
        for subject in subjects:
            assert rewritten.matches(reordered(subject, order, ".")) == oz.compile(pattern).matches(subject)
    assert let_through(demands, order) == passed


def test_an_order_that_saves_nothing_is_left_as_it_is():
    subjects = {"a.x.1": 5, "a.y.2": 7}
    demands = [demand_of("a.x.*", subjects, 3)]
    assert best_order(demands, 3) == ([0, 1, 2], True)
    assert best_order([], 3) == ([0, 1, 2], True)


def test_of_equal_orders_the_nearest_to_the_present_one_is_taken():
    subjects = {f"flight.{a}.{b}.{c}": 10 for a in "pqr" for b in "stu" for c in "vw"}
    order, _ = best_order([demand_of("flight.*.s.>", subjects, 4)], 4)
    assert order == [0, 2, 1, 3]


def test_of_many_tokens_a_good_order_is_found_and_said_to_be_only_good():
    chance = random.Random(5)
    depth = 14
    subjects = {".".join(chance.choices("ab", k=depth)): 10 for _ in range(200)}
    patterns = [".".join(chance.choice("ab**") for _ in range(depth - 1)) + ".*" for _ in range(6)]
    demands = [demand_of(pattern, subjects, depth) for pattern in patterns]
    order, is_best = best_order(demands, depth)
    assert not is_best
    assert sorted(order) == list(range(depth))
    assert let_through(demands, order) < let_through(demands, range(depth))


@pytest.mark.parametrize(
    ("pattern", "order", "becomes"),
    [
        ("flight.*.LAX.>", [0, 2, 1, 3], "flight.LAX.*.>"),
        ("flight.*.LAX.>", [0, 2, 3, 1], "flight.LAX.*.*"),
        ("flight.*.LAX.>", [2, 0, 1, 3], "LAX.flight.*.>"),
        ("*.east", [1, 0], "east.*"),
        ("rv:a.*.b.*", [0, 2, 1, 3], "a.b.*.*"),
        ("mqtt:a/+/b/#", [0, 2, 1, 3], "a/b/+/#"),
        ("mqtt:a/+/b/#", [0, 2, 1], "a/b/+"),
        ("amqp:*.b.#", [1, 0, 2, 3], "b.*.#"),
    ],
)
def test_patterns_are_rewritten_in_their_own_dialect(pattern, order, becomes):
    found = TokenPattern.of(oz.compile(pattern))
    assert found.rewritten(order) == becomes
    oz.compile(becomes, oz.compile(pattern).dialect)


@pytest.mark.parametrize(
    "pattern",
    ["a.b", "*.*", ">", "redis:a*", "regex:^a", "zmq:a.", "kubemq:a*.b", "amqp:#.a.*", "mqtt:#", "amqp:"],
)
def test_patterns_to_which_the_order_does_not_matter_are_left_out(pattern):
    assert TokenPattern.of(oz.compile(pattern)) is None


def test_a_pattern_counts_where_it_may_match():
    depth_of = TokenPattern.of(oz.compile("a.*.b.>")).at_depth
    assert [depth_of(depth) for depth in (3, 4)] == [None, ["a", None, "b", None]]
    assert depth_of(6) == ["a", None, "b", None, None, None]
    assert TokenPattern.of(oz.compile("a.*")).at_depth(3) is None
    assert TokenPattern.of(oz.compile("mqtt:a/#")).at_depth(1) == ["a"]
