"""Write tests/api/public.txt: every public name of oz with its signature and annotations, one a line.

Usage: python tools/api_snapshot.py [--check]     in a checkout with the extra `test`

With `--check` nothing is written: it fails, and says which lines differ, if the file is not what the code
has. What is public is what the packages list in `__all__` and what tools/api_reference.py puts on
docs/api.md, less what that script says belongs to oz alone. The code is read, not imported: it needs neither
PySpark nor pyarrow.
"""

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import api_reference
import griffe

ROOT = Path(__file__).parents[1]
SNAPSHOT = ROOT / "tests" / "api" / "public.txt"
COMMAND = "python tools/api_snapshot.py"

PACKAGES = ("oz", "oz.asyncio", "oz.journal", "oz.services", "oz.spark", "oz.testing")
UNLISTED = {"oz": ("__compiled__", "__version__", "asyncio", "compile")}
"""Public, and not in `__all__`: a star would put them in place of what Python calls so."""

PROTOCOLS = api_reference.ITERATION | {
    *("__enter__", "__exit__", "__aenter__", "__aexit__", "__next__", "__anext__"),
    *("__len__", "__contains__", "__getitem__", "__call__", "__bool__"),
}


class Api:
    """The package as griffe reads it, and what is public of it."""

    def __init__(self) -> None:
        loader = griffe.GriffeLoader(search_paths=[ROOT], allow_inspection=False)
        self.package = loader.load("oz", submodules=True)
        loader.resolve_aliases(implicit=True, external=False)
        self.names = self._names()
        self.public = {self._final(name).path: name for name in reversed(self.names)}
        self.aliases: dict[str, griffe.Attribute] = {}
        """The types that annotations call by a name of oz's own, as they are met."""

    def _names(self) -> list[str]:
        """Name all that is public, as users call it."""
        found = {name for names in api_reference.SECTIONS.values() for name in names}
        for package in PACKAGES:
            module = self._find(package)
            if module is not None:
                listed = [str(name) for name in module.exports or ()]
                found |= {f"{package}.{name}" for name in (*listed, *UNLISTED.get(package, ()))}
        return sorted(found)

    def _find(self, path: str) -> griffe.Object | griffe.Alias | None:
        """Find what a path stands for; None where there is none."""
        found: griffe.Object | griffe.Alias = self.package
        for part in path.split(".")[1:]:
            inside = found.final_target if isinstance(found, griffe.Alias) else found
            member = found.all_members.get(part)
            if member is not None and member.is_module and part in inside.imports and not member.is_alias:
                # `from oz.spark.gaps import gaps`: the function takes the module's place.
                member = member.members.get(part, member)
            if member is None:
                return None
            found = member
        return found

    def _final(self, path: str) -> griffe.Object:
        found = self._find(path)
        if found is None:
            raise KeyError(f"{path} is public, and oz has no such name")
        return found.final_target if isinstance(found, griffe.Alias) else found

    def lines(self) -> Iterator[str]:
        """Give a line for each name and each member, then one for each type that they name."""
        told = [line for name in self.names for line in self._told(name)]
        yield from sorted(told, key=lambda line: line.partition(": ")[0])
        yield from ("", "# Types that the annotations name")
        done: set[str] = set()
        while rest := self.aliases.keys() - done:
            done |= rest
            for path in rest:
                self._text(self.aliases[path].value)
        named = {(path.rpartition(".")[2], self._text(one.value)) for path, one in self.aliases.items()}
        yield from (f"{name}: = {text}" for name, text in sorted(named))

    def _told(self, name: str) -> Iterator[str]:
        value = self._final(name)
        if not isinstance(value, griffe.Class):
            yield from (f"{name}: {line}" for line in self._one(value))
            return
        yield f"{name}: class{self._bases(value)}"
        for member, found in self._members(value).items():
            is_made = member != "__init__" or name in api_reference.MADE_BY_USERS
            if is_made:
                yield from (f"{name}.{member}: {line}" for line in self._one(found))

    def _members(self, kind: griffe.Class) -> dict[str, griffe.Object]:
        """Give the public members of a class and of those of oz's that it is derived from."""
        family = [kind, *kind.mro()]
        hidden = set().union(*(api_reference.OWN.get(one.name, set()) for one in family))
        documented = {name for one in family for name in _documented(one)}
        found: dict[str, griffe.Object] = {}
        for one in family:
            for name, member in one.members.items():
                is_public = not name.startswith("_") or name in PROTOCOLS or name == "__init__"
                is_member = not member.is_alias and not member.is_class
                if is_member and member.is_attribute:
                    is_member = name in documented or bool({"property", "class-attribute"} & member.labels)
                if is_public and is_member and name not in hidden:
                    found.setdefault(name, member)  # type: ignore[arg-type]
        return found

    def _one(self, value: griffe.Object) -> Iterator[str]:
        """Describe a function, an attribute or a property, and each overload that it has."""
        if isinstance(value, griffe.Function):
            overloads = value.overloads or (value.parent.overloads.get(value.name) if value.parent else None)
            for one in overloads or (value,):
                yield self._function(one)
        elif isinstance(value, griffe.Attribute):
            yield self._attribute(value)
        else:
            yield value.kind.value

    def _function(self, value: griffe.Function) -> str:
        kind = "async def" if "async" in value.labels else "def"
        decorated = [f"{label} " for label in ("classmethod", "staticmethod") if label in value.labels]
        decorated += ["contextmanager " for one in value.decorators if str(one.value) == "contextmanager"]
        return f"{''.join(decorated)}{kind} {self._parameters(value)} -> {self._text(value.returns)}"

    def _parameters(self, value: griffe.Function) -> str:
        """Write the arguments: `/` and `*` where they stand, without self."""
        written: list[str] = []
        parameters = [one for one in value.parameters if one.name not in ("self", "cls")]
        kinds = [one.kind for one in parameters]
        for at, one in enumerate(parameters):
            star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(
                one.kind, ""
            )
            is_first = griffe.ParameterKind.keyword_only not in kinds[:at]
            if one.kind is griffe.ParameterKind.keyword_only and is_first:
                written.extend(["*"] if griffe.ParameterKind.var_positional not in kinds else [])
            text = f"{star}{one.name}: {self._text(one.annotation)}"
            written.append(text if one.default is None or star else f"{text} = {self._value(one.default)}")
            last = kinds[at + 1] if at + 1 < len(kinds) else None
            if one.kind is griffe.ParameterKind.positional_only and last is not one.kind:
                written.append("/")
        return f"({', '.join(written)})"

    def _attribute(self, value: griffe.Attribute) -> str:
        if "property" in value.labels:
            kind = "writable property" if "writable" in value.labels else "property"
            return f"{kind} {self._text(value.annotation)}"
        has_value = value.value is not None and "class-attribute" in value.labels
        shown = f" = {self._value(value.value)}" if has_value else ""
        return f"attribute {self._text(value.annotation or _given(value))}{shown}"

    def _bases(self, kind: griffe.Class) -> str:
        """Write what a class is derived from, past what is oz's own business."""
        written = dict.fromkeys(text for base in kind.bases for text in self._base(base))
        return f"({', '.join(written)})" if written else ""

    def _base(self, base: griffe.Expr | str) -> Iterator[str]:
        found = self._find(base.canonical_path) if isinstance(base, griffe.Expr) else None
        target = found.final_target if isinstance(found, griffe.Alias) else found
        if isinstance(target, griffe.Class) and target.path not in self.public:
            yield from (text for one in target.bases for text in self._base(one) if not _is_typing(text))
        else:
            yield self._text(base)

    def _value(self, value: griffe.Expr | str | None) -> str:
        """Write a default; a constant of oz's by its value."""
        if isinstance(value, griffe.ExprName | griffe.ExprAttribute):
            found = self._known(value)
            if isinstance(found, griffe.Attribute) and found.value is not None and found.name.isupper():
                return self._value(found.value)
        return str(value)

    def _known(self, name: griffe.Expr) -> griffe.Object | None:
        """Find what a name stands for, if it is of oz."""
        path = name.canonical_path
        found = self._find(path) if path.startswith("oz.") else None
        return found.final_target if isinstance(found, griffe.Alias) else found

    def _text(self, annotation: griffe.Expr | str | None) -> str:
        """Write an annotation: what is public by its public name, a type with a name of its own by that."""
        if annotation is None:
            return "?"
        if isinstance(annotation, str):
            return annotation
        if isinstance(annotation, griffe.ExprName | griffe.ExprAttribute):
            return self._name(annotation)
        return "".join(self._text(part) for part in annotation.iterate(flat=False))

    def _name(self, name: griffe.Expr) -> str:
        found = self._known(name)
        if found is not None and found.path in self.public:
            return self.public[found.path]
        if isinstance(found, griffe.Attribute) and found.value is not None:
            is_variable = str(found.value).startswith(("TypeVar(", "ParamSpec("))
            self.aliases |= {} if is_variable else {found.path: found}
        return str(name)


def _documented(kind: griffe.Class) -> Iterator[str]:
    """Name the attributes that the docstring of a class tells of, as tools/api_reference.py finds them."""
    text = kind.docstring.value if kind.docstring else ""
    for names, _ in api_reference.told_attributes(text):
        yield from names.split(", ")


def _given(value: griffe.Attribute) -> griffe.Expr | str | None:
    """Give the annotation of the argument that an attribute keeps: `self.bus = bus`."""
    begin = value.parent.members.get("__init__") if value.parent else None
    if isinstance(begin, griffe.Function) and str(value.value) in begin.parameters:
        return begin.parameters[str(value.value)].annotation
    return None


def _is_typing(base: str) -> bool:
    """Tell whether a base says something to type checkers only."""
    return base.partition("[")[0] in ("Protocol", "Generic")


def snapshot() -> str:
    """Write all of it."""
    return "\n".join(Api().lines()) + "\n"


def difference() -> str:
    """Say which lines of the file are not what the code has; nothing where all are."""
    before = SNAPSHOT.read_text(encoding="utf-8") if SNAPSHOT.exists() else ""
    lines = difflib.unified_diff(
        before.splitlines(), snapshot().splitlines(), "tests/api/public.txt", "the code", n=0, lineterm=""
    )
    return "\n".join(line for line in lines if not line.startswith("@@"))


def main() -> None:
    """Write the file, or check it."""
    if sys.argv[1:] != ["--check"]:
        SNAPSHOT.write_text(snapshot(), encoding="utf-8")
    elif told := difference():
        sys.exit(f"{told}\nThe public API changed. If that is meant: {COMMAND}, and a line in CHANGELOG.md")


if __name__ == "__main__":
    main()
