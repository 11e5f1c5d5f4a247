"""Break oz in many small ways, and count how many of them a program notices.

    python tools/mutants.py [--sample 300] [--seed 1] [--jobs 2] [--timeout S] [PATH …] -- WHAT PYTHON RUNS

    python tools/mutants.py --sample 100 oz/protocol/publisher -- -m simulation --quick --seeds 500

Each mutant is one change of one expression or statement in a module below the paths: a comparison turned
round, a condition negated, a number that is one more, a call left out. It lives in memory only: the program
runs in a process of its own, in which an import hook compiles the changed module. A mutant is killed when the
program ends with another code than 0, or does not end in its time. What survives is listed with its line.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.machinery
import os
import random
import runpy
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PATHS = ("oz/protocol/publisher", "oz/protocol/subscriber")

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
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
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: str
    number: int
    line: int
    what: str


class _Changes(ast.NodeTransformer):
    """Finds the places that can be changed, and changes the one that is wanted."""

    def __init__(self, wanted: int | None = None) -> None:
        self.wanted = wanted
        self.found: list[tuple[int, str]] = []

    def _is_it(self, node: ast.AST, what: str) -> bool:
        self.found.append((getattr(node, "lineno", 0), what))
        return self.wanted == len(self.found) - 1

    # what is left alone: annotations, docstrings, defaults, texts of errors, and what is there for slots only

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name == "__repr__":
            return node
        first = node.body[0]
        has_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        kept, rest = (node.body[:1], node.body[1:]) if has_doc else ([], node.body)
        node.body = kept + [self.visit(one) for one in rest]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [self.visit(one) if isinstance(one, ast.FunctionDef) else one for one in node.body]
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    # statements

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call) and self._is_it(node, "call left out"):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if self._is_it(node, "not counted"):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        kept = isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        if kept and self._is_it(node, "assignment left out"):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if self._is_it(node, "not deleted") else node

    def visit_If(self, node: ast.If) -> ast.AST:
        if self._is_it(node, "condition negated"):
            node.test = _negated(node.test)
            return node
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        is_value = node.value is not None and not isinstance(node.value, ast.Constant)
        if is_value and self._is_it(node, "None returned"):
            node.value = ast.copy_location(ast.Constant(None), node)
            return node
        return self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> ast.AST:
        return ast.copy_location(ast.Break(), node) if self._is_it(node, "break for continue") else node

    def visit_Break(self, node: ast.Break) -> ast.AST:
        return ast.copy_location(ast.Continue(), node) if self._is_it(node, "continue for break") else node

    # expressions

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1 and self._is_it(node, "comparison"):
            node.ops = [_COMPARISONS[type(node.ops[0])]()]
            return node
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if self._is_it(node, "and for or"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return node
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not) and self._is_it(node, "not left out"):
            return node.operand
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if type(node.op) in _OPERATORS and self._is_it(node, "operator"):
            node.op = _OPERATORS[type(node.op)]()
            return node
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            is_it = self._is_it(node, "truth value")
            return ast.copy_location(ast.Constant(not node.value), node) if is_it else node
        if isinstance(node.value, int | float) and self._is_it(node, "number"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func
        if isinstance(name, ast.Name) and name.id in _CALLS:
            if self._is_it(node, f"{_CALLS[name.id]} for {name.id}"):
                node.func = ast.copy_location(ast.Name(_CALLS[name.id], ast.Load()), name)
                return node
        elif (
            isinstance(name, ast.Attribute)
            and name.attr == "popleft"
            and self._is_it(node, "pop for popleft")
        ):
            name.attr = "pop"
            return node
        return self.generic_visit(node)


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def mutants_of(path: str) -> list[Mutant]:
    """Return every change that can be made in a module."""
    changes = _Changes()
    changes.visit(ast.parse((ROOT / path).read_text()))
    return [Mutant(path, number, line, what) for number, (line, what) in enumerate(changes.found)]


def changed(path: str, number: int) -> ast.Module:
    """Return the syntax tree of a module with one change."""
    tree = _Changes(number).visit(copy.deepcopy(ast.parse((ROOT / path).read_text())))
    module: ast.Module = ast.fix_missing_locations(tree)
    return module


# running -------------------------------------------------------------------------------------------------


class _ChangedLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> Any:
        return compile(self._tree, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the changed module before anything else does."""

    def __init__(self, path: str, number: int) -> None:
        self._name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self._path, self._tree = str(ROOT / path), changed(path, number)

    def find_spec(self, fullname: str, _path: Any, _target: Any = None) -> Any:
        if fullname != self._name:
            return None
        loader = _ChangedLoader(fullname, self._path, self._tree)
        return importlib.machinery.ModuleSpec(fullname, loader, origin=self._path)


def run_changed(path: str, number: int, arguments: Sequence[str]) -> None:
    """Run a program of Python in this process, with one module changed."""
    sys.meta_path.insert(0, _Finder(path, number))
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        runpy.run_path(arguments[0], run_name="__main__")


def killed_by(mutant: Mutant | None, arguments: Sequence[str], timeout: float) -> str | None:
    """Run the program; tell how it noticed, None if it did not."""
    if mutant is None:
        command = [sys.executable, *arguments]
    else:
        spec = f"{mutant.path}:{mutant.number}"
        command = [sys.executable, __file__, "--changed", spec, "--", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return "did not end"
    return None if done.returncode == 0 else f"ended with {done.returncode}"


def sampled(paths: Sequence[str], sample: int, seed: int) -> tuple[list[Mutant], int]:
    """Draw mutants, the same for the same seed; say of how many."""
    everything: list[Mutant] = []
    for path in paths:
        found = ROOT / path
        for file in [found] if found.is_file() else sorted(found.rglob("*.py")):
            everything += mutants_of(file.relative_to(ROOT).as_posix())
    drawn = random.Random(seed).sample(everything, min(sample, len(everything)))
    return sorted(drawn, key=lambda one: (one.path, one.number)), len(everything)


def judge(mutants: Sequence[Mutant], arguments: Sequence[str], jobs: int, timeout: float) -> Iterator[str]:
    """Run the program with each mutant; give the lines of a report."""
    began, causes = time.monotonic(), Counter[str]()
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, cause in zip(
            mutants, pool.map(lambda one: killed_by(one, arguments, timeout), mutants), strict=True
        ):
            causes[cause or "survived"] += 1
            if cause is None:
                line = (ROOT / mutant.path).read_text().splitlines()[mutant.line - 1].strip()
                yield f"survived: {mutant.path}:{mutant.line} #{mutant.number}: {mutant.what}: {line}"
    killed = len(mutants) - causes["survived"]
    share = 100 * killed / max(1, len(mutants))
    ways = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
    yield f"{killed} of {len(mutants)} killed ({share:.0f}%) in {time.monotonic() - began:.0f} s: {ways}"


def main() -> int:
    """Read the command line, and print the report."""
    own, program = sys.argv[1:], ["-m", "simulation", "--quick", "--seeds", "500"]
    if "--" in own:
        place = own.index("--")
        own, program = own[:place], own[place + 1 :]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", default=PATHS, help="modules or packages, from the top of oz")
    parser.add_argument("--sample", type=int, default=300, help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that one may take")
    parser.add_argument("--changed", help=argparse.SUPPRESS)
    options = parser.parse_args(own)
    if options.changed is not None:
        path, _, number = options.changed.rpartition(":")
        run_changed(path, int(number), program)
        return 0
    if (cause := killed_by(None, program, options.timeout)) is not None:
        print(f"the program does not pass by itself: it {cause}", file=sys.stderr)
        return 1
    mutants, count = sampled(options.paths, options.sample, options.seed)
    print(f"{len(mutants)} mutants of {count}, seed {options.seed}", flush=True)
    for line in judge(mutants, program, options.jobs, options.timeout):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
