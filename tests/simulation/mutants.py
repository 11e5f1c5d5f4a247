"""Whether the simulation can fail: `python -m simulation.mutants --count 300 --seeds 500`.

It changes one thing in the machines of publishers or subscribers, and runs seeds until one fails.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import logging
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import oz

ROOT = Path(oz.__file__).parent.parent
PACKAGES = ("oz/protocol/publisher", "oz/protocol/subscriber")
MEMORY = 4 << 30

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
CALCULATED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


SKIPPED = ast.Raise, ast.Assert, ast.FunctionDef, ast.arguments
"""What is not entered: what only refuses or says something; functions within, which have their own turn."""


def changes(node):
    """Yield what may be made of a node, each as a function that changes it in place or returns another."""
    match node:
        case ast.Compare():
            for at, operator in enumerate(node.ops):
                if type(operator) in COMPARED:
                    yield lambda node, at=at: _set(node.ops, at, COMPARED[type(node.ops[at])]())
        case ast.BoolOp():
            yield lambda node: setattr(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield lambda node: node.operand
        case ast.If() | ast.IfExp() | ast.While():
            yield lambda node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
        case ast.BinOp() | ast.AugAssign() if type(node.op) in CALCULATED:
            yield lambda node: setattr(node, "op", CALCULATED[type(node.op)]())
        case ast.Constant(value=bool()):
            yield lambda node: setattr(node, "value", not node.value)
        case ast.Constant(value=int() | float()):
            yield lambda node: setattr(node, "value", node.value + 1)
        case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield()):
            yield lambda _: ast.Pass()
        case ast.Break():
            yield lambda _: ast.Continue()
        case ast.Continue():
            yield lambda _: ast.Break()
        case ast.Assign() if not isinstance(node.value, ast.Constant):
            yield lambda node: setattr(node, "value", ast.Constant(None))


def _set(values, at, value):
    values[at] = value


def sites(tree):
    """List the nodes to change in the bodies of functions, each with its parent and its statement's line."""

    def visit(node, first):
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, SKIPPED):
                    continue
                line = child.lineno if isinstance(child, ast.stmt) else first
                found.extend((child, node, field, change, line) for change in changes(child))
                visit(child, line)

    found = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name != "__repr__":
            visit(function, function.lineno)
    return found


def candidates():
    """List all mutants: a file, the number of the change in it, and its lines, from its statement's first."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).glob("*.py")):
            for number, (node, *_, first) in enumerate(sites(ast.parse(path.read_text()))):
                last = getattr(node, "test", node).end_lineno
                yield path.relative_to(ROOT).as_posix(), number, range(min(first, last), last + 1)


def mutated(text, number):
    """Return the text of a module with one change, and that of the changed statement before and after."""
    tree = ast.parse(text)
    node, parent, field, change, _ = sites(tree)[number]
    before = ast.unparse(copy.deepcopy(node))
    other = change(node)
    if other is not None:
        value = getattr(parent, field)
        if isinstance(value, list):
            value[value.index(node)] = other
        else:
            setattr(parent, field, other)
    tree = ast.fix_missing_locations(tree)
    return ast.unparse(tree), before.split("\n")[0], ast.unparse(other or node).split("\n")[0]


def reached(seeds):
    """Return the lines that seeds execute, by file; None if the package coverage is not there."""
    try:
        import coverage
    except ImportError:
        return None
    found = coverage.Coverage(data_file=None, include=[f"{ROOT}/{package}/*" for package in PACKAGES])
    found.start()
    from simulation.__main__ import violates

    for seed in range(seeds):
        violates(seed)
    found.stop()
    data = found.get_data()
    return {Path(one).relative_to(ROOT).as_posix(): set(data.lines(one)) for one in data.measured_files()}


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def tried(directory, file, number, seeds):
    """Run seeds on a copy of oz with one change; return how it ended."""
    path = directory / file
    text = (ROOT / file).read_text()
    changed, before, after = mutated(text, number)
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*"):
        cached.unlink()
    path.write_text(changed)
    tests = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), tests])}
    command = [sys.executable, "-m", "simulation", "--quick", "--seeds", str(seeds)]
    ended = subprocess.run(
        command, cwd=directory, env=environment, preexec_fn=limited, capture_output=True, text=True
    )
    path.write_text(text)
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*"):
        cached.unlink()
    how = "survives"
    if ended.returncode:
        last = (ended.stdout.strip() or ended.stderr.strip() or f"signal {-ended.returncode}").splitlines()
        how = last[0][:150] if ended.stdout.strip() else last[-1][:150]
    return {"before": before, "after": after, "how": how}


def survives(result):
    return result["how"] in ("survives", "not reached")


def main():
    logging.getLogger("oz").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="simulation.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="mutants (default: 300)")
    parser.add_argument("--seeds", type=int, default=500, help="seeds for each at most (default: 500)")
    parser.add_argument("--sample", type=int, default=17, help="the seed of the sample (default: 17)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--into", type=Path, help="a file of JSON lines; what it has is not run again")
    given = parser.parse_args()
    chosen = random.Random(given.sample).sample(list(candidates()), given.count)
    known = {}
    if given.into is not None and given.into.exists():
        lines = [json.loads(line) for line in given.into.read_text().splitlines()]
        known = {(one["file"], one["number"]): one for one in lines}
    left = [one for one in chosen if one[:2] not in known]
    lines = reached(min(given.seeds, 200)) if left else None
    directories = SimpleQueue()
    counts = Counter(map(survives, known.values()))

    def one(mutant):
        file, number, within = mutant
        if lines is not None and lines.get(file, set()).isdisjoint(within):
            _, before, after = mutated((ROOT / file).read_text(), number)
            result = {"before": before, "after": after, "how": "not reached"}
        else:
            directory = directories.get()
            try:
                result = tried(directory, file, number, given.seeds)
            finally:
                directories.put(directory)
        return {"file": file, "number": number, "line": within[-1], **result}

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.jobs) as pool:
        for job in range(given.jobs):
            shutil.copytree(ROOT / "oz", Path(scratch, str(job), "oz"))
            directories.put(Path(scratch, str(job)))
        for result in pool.map(one, left):
            counts[survives(result)] += 1
            place = f"{result['file']}:{result['line']}"
            print(f"{place}: {result['before']} -> {result['after']}: {result['how']}", flush=True)
            if given.into is not None:
                with given.into.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    print(f"{counts[False]} of {sum(counts.values())} die within {given.seeds} seeds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
