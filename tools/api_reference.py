"""Write docs/api.md, to be read as it is, and the lists of members in docs/reference.md, which is for Sphinx.

Usage: python tools/api_reference.py [--check]     in a checkout with the extra `journal`

With `--check` nothing is written: it fails if a page is not up to date. What is public is listed here;
members are found by looking at the classes.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stand_in import StandIn

DOCS = Path(__file__).parents[1] / "docs"
PAGE, REFERENCE = DOCS / "api.md", DOCS / "reference.md"

INTRODUCTION = """# API

Every public name, its signature and what it does in one line; [the reference](reference.md) has each in full.
What is on neither page is not public. `tools/api_reference.py` writes this page from the code.

`oz.X` is `import oz`. Durations are float seconds, sizes are bytes; `timeout=None` waits for ever and
`timeout=0` does not wait. The sockets have the methods of `zmq.Socket` too.
"""

SECTIONS: dict[str, tuple[str, ...]] = {
    "Subjects and patterns": (
        "oz.compile",
        "oz.parse",
        "oz.validate_subject",
        "oz.Pattern",
        "oz.PatternIndex",
    ),
    "Sockets": (
        "oz.Publisher",
        "oz.Subscriber",
        "oz.Subscription",
        "oz.Message",
        "oz.Gap",
        "oz.Multicast",
        "oz.Advisory",
        "oz.PublisherStats",
        "oz.SubscriberStats",
        "oz.Poller",
        "oz.MessageBatch",
        "oz.PlainBatch",
    ),
    "asyncio": ("oz.asyncio.Publisher", "oz.asyncio.Subscriber", "oz.asyncio.Subscription"),
    "Nodes": (
        "oz.Node",
        "oz.NodeSubscription",
        "oz.ReceivedSubscription",
        "oz.NodeStats",
        "oz.Announcement",
        "oz.asyncio.Node",
        "oz.asyncio.NodeSubscription",
        "oz.asyncio.ReceivedSubscription",
        "oz.services.ask",
    ),
    "Journal": (
        "oz.journal.Writer",
        "oz.journal.Journal",
        "oz.journal.Record",
        "oz.journal.Kind",
        "oz.services.Recorder",
        "oz.services.RecorderStats",
        "oz.services.replay",
        "oz.services.Control",
        "oz.services.ReplayStats",
    ),
    "Configuration": (
        "oz.resolve_configuration",
        "oz.Configuration",
        "oz.private_directory",
        "oz.survey_configuration",
        "oz.ConfigurationSurvey",
        "oz.Setting",
        "oz.ConfigurationFile",
    ),
    "Testing": (
        "oz.testing.Bus",
        "oz.testing.message",
        "oz.testing.RecordedMessage",
        "oz.testing.VirtualLoop",
    ),
    "Discovery": ("oz.services.NameServer", "oz.services.RegistryStats"),
    "Forwarders": (
        "oz.services.Forwarder",
        "oz.services.ForwarderStats",
        "oz.services.Proxy",
        "oz.services.ProxyStats",
    ),
}

SPARK = (
    *("oz.spark.session", "oz.spark.register", "oz.spark.matches", "oz.spark.prefix", "oz.spark.depth"),
    *("oz.spark.token", "oz.spark.match_all", "oz.spark.join_patterns", "oz.spark.gaps"),
    *("oz.spark.from_msgpack", "oz.spark.from_payload", "oz.spark.archive", "oz.spark.Archived"),
    *("oz.spark.LakeLayout", "oz.spark.lake_files", "oz.spark.report", "oz.spark.Report"),
    "oz.spark.PythonWarning",
)
SECTIONS["Spark"] = SPARK

OWN = {
    # What the classes call of each other, or of pyzmq, by names without an underscore.
    "Subscribed": {"answer", "count", "wants", "keeps", "prefixes"},
    "NodeSubscription": {"answer", "queue"},
    "ReceivedSubscription": {"answer", "queue"},
    "Message": {"body", "extras", "route"},
    "RoutedMessage": {"arrival"},
    "MessageBatch": {"route", "arrival"},
    "PlainBatch": {"route"},
    "SubscriberSocket": {"check_owner", "described"},
    "Publisher": {"check_owner", "shadow"},
    "PatternIndex": {"find"},
    "Archived": {"count"},
    "SubscriberFront": {"check_owner", "described"},
    "PublisherFront": {"check_owner"},
    "Node": {"die"},
    # What a model's socket has, by which a subscriber is one.
    "AwaitedSocket": {
        *("attach", "await_events", "backend", "context", "die", "get", "get_string", "getsockopt"),
        *(
            "getsockopt_string",
            "hiccuped",
            "identity",
            "is_busy",
            "join",
            "last_endpoint",
            "marks",
            "new_end",
        ),
        *("notify", "poll", "post", "process_commands", "readable", "recv", "recv_multipart", "send", "set"),
        *("send_multipart", "session_ended", "setsockopt", "terminated", "type", "writable"),
        *("__enter__", "__exit__"),
    },
    # What it does otherwise than asyncio's own.
    "VirtualLoop": {"call_soon", "run_forever", "run_in_executor", "shutdown_default_executor"},
    "Pattern": {
        "flags",
        "named_lists",
        "is_lenient",
        "is_bytes",
        "tokens",
        "words",
        "literal",
        "splitting",
        "expression",
        "is_prefix",
    },
}
MADE_BY_USERS = {
    *("oz.PatternIndex", "oz.Publisher", "oz.Subscriber", "oz.Multicast", "oz.Poller", "oz.Node"),
    *(
        "oz.asyncio.Publisher",
        "oz.asyncio.Subscriber",
        "oz.asyncio.Node",
        "oz.journal.Writer",
        "oz.journal.Journal",
    ),
    *("oz.journal.Record", "oz.services.Recorder", "oz.services.Control"),
    *("oz.services.NameServer", "oz.services.Forwarder", "oz.services.Proxy"),
    *("oz.testing.Bus", "oz.testing.VirtualLoop"),
}
ITERATION = {"__iter__", "__aiter__"}
_ATTRIBUTE = re.compile(r"^    (\w+(?:, \w+)*): ((?:.*)(?:\n        .*)*)$", re.MULTILINE)
_CLASS = re.compile(r"^\.\. autoclass:: ([\w.]+)((?:\(\))?)\n((?:   :.*\n)*)", re.MULTILINE)


if importlib.util.find_spec("pyspark") is None:
    sys.meta_path.append(StandIn("pyspark"))


def find(name: str) -> Any:
    """Import what a dotted name stands for."""
    module, _, rest = name.rpartition(".")
    while True:
        try:
            found: Any = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, more = module.rpartition(".")
            rest = f"{more}.{rest}"
    for part in rest.split("."):
        found = getattr(found, part)
    return found


def members(kind: type) -> dict[str, Any]:
    """Give the public members of a class that are oz's, not pyzmq's nor Python's."""
    found: dict[str, Any] = {}
    hidden: set[str] = set()
    for one in kind.__mro__:
        if not one.__module__.startswith("oz."):
            continue
        hidden |= OWN.get(one.__name__, set())
        for name, value in vars(one).items():
            is_public = not name.startswith("_") or name in ITERATION
            is_member = callable(value) or isinstance(value, (property, classmethod, staticmethod))
            is_alias = getattr(value, "__name__", name) != name
            if is_public and is_member and not is_alias and not isinstance(value, type):
                found.setdefault(name, value)
    return {name: value for name, value in found.items() if name not in hidden}


def field_docs(kind: type) -> dict[str, str]:
    """Give the strings that stand below the fields of a class."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    body = getattr(tree, "body", [])
    return {
        field.target.id: text.value.value.split("\n\n")[0].replace("\n", " ")
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def attributes(kind: type) -> dict[str, str]:
    """Give the attributes that the docstrings of a class tell of, with what they say."""
    found: dict[str, str] = {}
    hidden = set().union(*(OWN.get(one.__name__, set()) for one in kind.__mro__))
    for one in kind.__mro__:
        doc = inspect.cleandoc(one.__dict__.get("__doc__") or "") if one.__module__.startswith("oz.") else ""
        if one.__module__.startswith("oz."):
            found = field_docs(one) | found
        for names, text in told_attributes(doc):
            for name in names.split(", "):
                found.setdefault(name, " ".join(text.split()).replace("|", "\\|"))
    return {name: text for name, text in found.items() if name not in hidden and not name.startswith("_")}


def told_attributes(doc: str) -> list[tuple[str, str]]:
    """Give the names and the text of each entry below `Attributes:` in a docstring."""
    return _ATTRIBUTE.findall(doc.partition("Attributes:\n")[2].split("\n\n")[0])


def signature(value: Any) -> str:
    """Write the arguments of a function, without their types."""
    value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    told = inspect.signature(value)
    named = [one.replace(annotation=inspect.Parameter.empty) for one in told.parameters.values()]
    if named and named[0].name in ("self", "cls"):
        named = named[1:]
    written = str(told.replace(parameters=named, return_annotation=inspect.Signature.empty))
    written = re.sub(r"<function <lambda> at \w+>", "…", written)
    return re.sub(r"<\w+\.(\w+): [^>]*>", r"zmq.\1", written)


def first_line(value: Any) -> str:
    """Give the first sentence of a docstring, as one line."""
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "").split("\n\n")[0].replace("\n", " ")
    return text.replace("|", "\\|")


def rows(kind: type) -> Iterator[tuple[str, str]]:
    """Give what stands in the table of a class."""
    told = attributes(kind)
    for name, value in members(kind).items():
        told.pop(name, None)
        if isinstance(value, property):
            yield name, first_line(value)
        else:
            is_async = inspect.iscoroutinefunction(value)
            yield f"{'await ' if is_async else ''}{name}{signature(value)}", first_line(value)
    yield from told.items()


def entry(name: str) -> Iterator[str]:
    """Write one public name."""
    value = find(name)
    yield f"### `{name}`"
    yield first_line(value)
    if inspect.isclass(value):
        if name in MADE_BY_USERS:
            yield f"```text\n{name}{signature(value.__init__)}\n```"
        table = [f"| `{shown}` | {text} |" for shown, text in rows(value)]
        if table:
            yield "\n".join(["| | |", "| --- | --- |", *table])
    else:
        yield f"```text\n{name}{signature(value)}\n```"


def errors() -> Iterator[str]:
    """Write the tree of errors."""
    module = importlib.import_module("oz.errors")
    kinds = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and not value.__name__.startswith("_")
    ]
    kinds.append(find("oz.EndpointError"))
    table = [
        f"| `oz.{one.__name__}` | {', '.join(bases(one))} | {first_line(one)} |"
        for one in kinds
        if one.__module__.startswith("oz.")
    ]
    yield "\n".join(["| error | is a | |", "| --- | --- | --- |", *table])


def bases(kind: type) -> list[str]:
    """Name what a class is derived from, past what is oz's own business."""
    return [
        name
        for base in kind.__bases__
        for name in ([base.__name__] if not base.__name__.startswith("_") else bases(base))
    ]


def page() -> str:
    """Write all of it."""
    parts = [INTRODUCTION.rstrip()]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            parts.extend(part for part in entry(name) if part)
    parts.append("## Errors")
    parts.extend(errors())
    return "\n\n".join(parts) + "\n"


def reference(before: str) -> str:
    """Put the members of each class into the page for Sphinx.

    Raises:
        KeyError: a public name is missing there.
    """
    missing = {name for names in SECTIONS.values() for name in names if inspect.isclass(find(name))}

    def with_members(found: re.Match[str]) -> str:
        name = found[1] if found[1].startswith("oz.") else f"oz.{found[1]}"
        missing.discard(name)
        options = [one for one in found[3].splitlines(keepends=True) if not one.startswith("   :members:")]
        kind = find(name)
        listed = re.findall(r"\w+", found[3].partition(":members:")[2].partition("\n")[0])
        listed = [*members(kind), *(one for one in listed if one not in members(kind))]
        if "   :members:\n" in found[3]:
            # All that the class itself has a docstring for: the fields of counters.
            options.append("   :members:\n")
        elif listed:
            options.append(f"   :members: {', '.join(listed)}\n")
        return f".. autoclass:: {found[1]}{found[2]}\n{''.join(options)}"

    after = _CLASS.sub(with_members, before)
    if missing:
        raise KeyError(f"docs/reference.md has no autoclass of {', '.join(sorted(missing))}")
    return after


def main() -> None:
    """Write the pages, or check them."""
    before = REFERENCE.read_text(encoding="utf-8")
    written = {PAGE: page(), REFERENCE: reference(before)}
    for path, text in written.items():
        if sys.argv[1:] != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"docs/{path.name} is out of date: run python tools/api_reference.py")


if __name__ == "__main__":
    main()
