"""The model of ZeroMQ held against libzmq: the same schedules on both, and the same observations."""

import os

import pytest

from support.zmq_schedules import run, schedule
from support.zmq_worlds import ModelWorld, RealWorld

FEW = 60
MANY = int(os.environ.get("OZ_ZMQ_SCHEDULES", "2000"))


def observations(world_class, seed, plan):
    world = world_class(seed)
    try:
        return run(world, plan)
    finally:
        world.close()


def compare(seed):
    plan = schedule(seed)
    model, real = (observations(world, seed, plan) for world in (ModelWorld, RealWorld))
    for (step, ours), (_, theirs) in zip(model, real, strict=True):
        for mine, its in zip(ours, theirs, strict=True):
            assert mine == its, f"schedule {seed}, a {plan[0].__name__} bus: the model differs in {step}"


@pytest.mark.parametrize("first", range(0, FEW, 10))
def test_model_and_libzmq_agree_on_random_schedules(first):
    for seed in range(first, first + 10):
        compare(seed)


@pytest.mark.heavy
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(10))
def test_model_and_libzmq_agree_on_very_many_random_schedules(part):
    for seed in range(FEW + part, FEW + MANY, 10):
        compare(seed)
