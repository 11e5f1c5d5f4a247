"""The programs of tests/typing, which type checkers read, have every public call."""

import ast
from pathlib import Path

from support.cases import each

TESTS = Path(__file__).parents[1]

AROUND = {"__enter__", "__exit__"}, {"__aenter__", "__aexit__"}


def public():
    """Give the public classes, and every public call: functions, methods and constructors."""
    classes, calls = set(), set()
    for line in (TESTS / "api" / "public.txt").read_text(encoding="utf-8").partition("\n\n")[0].splitlines():
        name, _, kind = line.partition(": ")
        if kind.startswith("class") and not kind.startswith("classmethod "):
            classes.add(name)
        elif "def (" in kind:
            calls.add(name)
    return classes, calls


class Seen(ast.NodeVisitor):
    """The public calls of a program: a variable is of the class that its annotation or its making says."""

    def __init__(self, classes):
        self.calls = set()
        self.classes = classes
        self.names = {}
        self.kinds = {}

    def visit_ImportFrom(self, node):
        self.names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}

    def visit_FunctionDef(self, node):
        for one in node.args.args:
            self.kinds[one.arg] = self.path(one.annotation)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_With(self, node):
        self.around(node, *AROUND[0])

    def visit_AsyncWith(self, node):
        self.around(node, *AROUND[1])

    def around(self, node, *methods):
        for item in node.items:
            kind = self.kind(item.context_expr)
            self.calls |= {f"{kind}.{method}" for method in methods}
            if isinstance(item.optional_vars, ast.Name):
                self.kinds[item.optional_vars.id] = kind
        self.generic_visit(node)

    def visit_For(self, node):
        self.calls.add(f"{self.kind(node.iter)}.__iter__")
        self.generic_visit(node)

    def visit_AsyncFor(self, node):
        self.calls.add(f"{self.kind(node.iter)}.__aiter__")
        self.generic_visit(node)

    def visit_Assign(self, node):
        if isinstance(node.targets[0], ast.Name):
            self.kinds[node.targets[0].id] = self.kind(node.value)
        self.generic_visit(node)

    def visit_Call(self, node):
        path = self.path(node.func)
        self.calls.add(f"{path}.__init__" if path in self.classes else path)
        if path == "len":
            self.calls.add(f"{self.kind(node.args[0])}.__len__")
        self.generic_visit(node)

    def kind(self, node):
        """Name the class of a value: of a variable, or of what a constructor makes."""
        if isinstance(node, ast.Call):
            return self.path(node.func)
        return self.kinds.get(node.id, "") if isinstance(node, ast.Name) else ""

    def path(self, node):
        """Name what a dotted name stands for; through a variable, what its class calls so."""
        if isinstance(node, ast.Subscript):
            return self.path(node.value)
        if isinstance(node, ast.Attribute):
            return f"{self.path(node.value)}.{node.attr}"
        if isinstance(node, ast.Name):
            return self.kinds.get(node.id) or self.names.get(node.id, node.id)
        return ""


def calls_of(program):
    classes, _ = public()
    seen = Seen(classes)
    seen.visit(ast.parse(program))
    return seen.calls


def test_every_public_call_occurs_in_a_program_for_type_checkers():
    _, wanted = public()
    assert len(wanted) > 100
    programs = [path for path in sorted((TESTS / "typing").glob("*.py")) if path.name != "wrong.py"]
    seen = set().union(*(calls_of(path.read_text(encoding="utf-8")) for path in programs))
    assert sorted(wanted - seen) == [], "add these to tests/typing/every_call*.py"


@each(
    ("program", "call"),
    [
        ("def f(one: oz.Publisher) -> None: one.flush()", "oz.Publisher.flush"),
        ("def f(one: oz.PatternIndex[str]) -> None: len(one)", "oz.PatternIndex.__len__"),
        ("with oz.Node() as node: pass", "oz.Node.__exit__"),
        ("node = oz.Node()\nnode.close()", "oz.Node.close"),
        ("from oz.journal import Journal\nfor one in Journal().read(): pass", "oz.journal.Journal.__init__"),
    ],
)
def test_calls_are_found_through_variables_and_imports(program, call):
    assert call in calls_of(program)


def test_a_call_of_another_class_does_not_count():
    calls = calls_of("def f(one: oz.Publisher, other: oz.Subscriber) -> None: other.close()")
    assert "oz.Subscriber.close" in calls
    assert "oz.Publisher.close" not in calls
