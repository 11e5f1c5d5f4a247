"""Options that several commands have, and their checks."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

import oz
from oz.escaping import printable
from oz.options import OVERFLOWS, POLICIES
from oz.subjects.advice import foreign_wildcard, foreign_wildcard_text, misspelled_dialect
from oz.subjects.pattern import compile_with_default
from oz.subscriber.checks import FILTERINGS

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5750"
"""Endpoint of `oz pub` and `oz sub` without endpoint options. Only this machine can connect to it."""

SOCKET_READY_SECONDS = 1.0
"""Seconds for which a command waits until the peers of its socket answer. Then it reports peers without an answer."""

DELIVERY = ("group", "overflow", "last_value")
"""Names of the options of `delivery_options` that are also arguments of `subscribe`."""

MAX_SECONDS = 1e9
"""Maximum of an option that is a time, in seconds: 31 years. With a longer time, clocks would overflow."""

MAX_TIMES = 1_000_000_000_000
"""Maximum of an option that is a count."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Number(click.FloatRange):
    """Type of an option that is a number in a range. NaN is rejected, which the range of click would accept."""

    def __init__(self, minimum: float = 0.0, maximum: float = MAX_SECONDS, *, above: bool = False) -> None:
        """Create a type for numbers from `minimum` to `maximum`. With `above`, `minimum` itself is excluded."""
        super().__init__(minimum, maximum, min_open=above)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail."""
        if math.isnan(click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        text = super()._describe_range()
        return text if self.max != MAX_SECONDS else f"x{'>' if self.min_open else '>='}{self.min:g}"


_EMPTY_PATH = "the path is empty; is a variable of the shell unset? Write . for the current directory."


class PathName(click.Path):
    """Type of an option that is a path. An empty path is rejected: it usually comes from an unset shell variable."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail."""
        if not os.fspath(value):
            self.fail(_EMPTY_PATH, param, ctx)
        return super().convert(value, param, ctx)


TEXT_OF_PLACE = PathName(readable=False)
"""Type of an option that is a path or a URI."""


class Whole(click.IntRange):
    """Type of an option that is a whole number in a range."""

    def __init__(self, minimum: int = 0, maximum: int = MAX_TIMES) -> None:
        """Create a type for numbers from `minimum` to `maximum`."""
        super().__init__(minimum, maximum)

    def _describe_range(self) -> str:
        return super()._describe_range() if self.max != MAX_TIMES else f"x>={self.min}"


def dialect_option(of_what: str) -> Callable[[_F], _F]:
    """Add `--dialect`. The help of the option is "The dialect of", continued by `of_what`."""
    return click.option(
        "--dialect",
        type=click.Choice(oz.DIALECTS),
        default=oz.DIALECTS[0],
        metavar="NAME",
        help=f"The dialect of {of_what}: {', '.join(oz.DIALECTS)}.  [default: {oz.DIALECTS[0]}]",
    )


def endpoint_options(default: str) -> Callable[[_F], _F]:
    """Add `--bind` and `--connect`. The option with the name `default` has a default endpoint."""

    def offer(command: _F) -> _F:
        for name in ("--connect", "--bind"):
            note = f"  [default: {DEFAULT_ENDPOINT}]" if name == default else ""
            text = f"{name[2:].capitalize()} to this endpoint; may be repeated.{note}"
            command = endpoints_option(name, text)(command)
        return command

    return offer


def security_option(command: _F) -> _F:
    """Add `--security`. The command gets a `Security`, or None without keys."""
    return click.option(
        "--security",
        metavar="FILE",
        callback=lambda _ctx, _option, path: read_security(path),
        help=_SECURITY_HELP,
    )(command)


def security_path_option(command: _F) -> _F:
    """Add `--security`. The command gets the path or None, so that it can call `read_security` only if necessary."""
    return click.option("--security", metavar="FILE", help=_SECURITY_HELP)(command)


_SECURITY_HELP = (
    "A TOML file with a table [security]: the key of this command, and the trusted keys.  "
    "[default: OZ_SECURITY, or the configuration file]"
)


def read_security(path: str | None) -> oz.Security | None:
    """Return the keys in a file, or in the configuration if `path` is None; None without keys."""
    from oz.transport.security import resolve_security  # imported here, because most commands need no sockets

    return resolve_security() if path is None else oz.Security.from_file(path)


_SHORT = {"--connect": ("-c",), "--bind": ("-b",)}


def endpoints_option(name: str, text: str) -> Callable[[_F], _F]:
    """Add an option for endpoints, which may be repeated."""
    names = (*_SHORT.get(name, ()), name)
    return click.option(*names, multiple=True, metavar="ENDPOINT", callback=_checked, help=text)


def filtering_option(command: _F) -> _F:
    """Add `--filtering`."""
    return click.option(
        "--filtering",
        type=click.Choice(FILTERINGS),
        default="auto",
        help="Side that filters: the oz publisher, or ZeroMQ by prefix. With auto, an oz publisher filters its "
        "messages, and ZeroMQ filters the messages of other publishers.  [default: auto]",
    )(command)


def group_option(text: str) -> Callable[[_F], _F]:
    """Add `--group`."""
    return click.option("-g", "--group", metavar="NAME", help=text)


def separator_option(of_what: str) -> Callable[[_F], _F]:
    """Add `--separator`. The help of the option is "Text between", continued by `of_what`."""
    return click.option(
        "--separator",
        default=".",
        metavar="TEXT",
        callback=_check_separator,
        help=f"Text between {of_what}.  [default: .]",
    )


def _check_separator(_ctx: click.Context, _option: click.Parameter, text: str) -> str:
    if not text:
        raise click.BadParameter("the text is empty; give at least one character, such as . or /")
    return text


def delivery_options(command: _F) -> _F:
    """Add the options of a subscription. `delivery_arguments` converts them to arguments."""
    options = (
        group_option("Each message goes to one of the subscribers of this group."),
        click.option(
            "--policy",
            type=click.Choice(POLICIES),
            help="Member of the group that gets a message: each member in turn, the same member for each subject or "
            "key, or the member that joined first.  [default: round_robin]",
        ),
        click.option(
            "--overflow",
            type=click.Choice(OVERFLOWS),
            help="If this subscriber is too slow: keep only the newest message of each subject, or drop the "
            "oldest or the newest messages.  [default: keep all]",
        ),
        click.option(
            "--last-value",
            is_flag=True,
            help="Begin with the newest message of each subject, if the publisher keeps it.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def delivery_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `delivery_options` from `given`; return the corresponding arguments of `subscribe`."""
    arguments = {name: value for name in DELIVERY if (value := given.pop(name)) not in (None, False)}
    if policy := given.pop("policy"):
        arguments["delivery"] = oz.Delivery(policy=policy)
    return arguments


def _checked(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[str]:
    from oz.transport import endpoints

    for endpoint in given:
        endpoints.check(endpoint, own_context=True)
    return list(given)


def ready_line(
    endpoint: str | None, bind: Sequence[str], connect: Sequence[str], *, have_answered: bool = False
) -> str:
    """Return the line that reports a ready socket and its endpoints.

    Args:
        endpoint: endpoint that the socket has bound last, with the port number in place of `*`; None if the socket has
            bound no endpoint.
        bind: endpoints that the command has bound.
        connect: endpoints to which the command has connected.
        have_answered: whether the peers at the endpoints in `connect` have answered.
    """
    bound = [f"bound to {item}" for item in (*bind[:-1], endpoint)] if bind else []
    connects = "connected" if have_answered else "connecting"
    return f"ready, {', '.join(bound + [f'{connects} to {item}' for item in connect])}"


def parse_all(specs: Sequence[str], dialect: str, *, warn: bool = True) -> list[oz.Pattern]:
    """Compile patterns of the command line.

    Args:
        specs: the patterns. A pattern may begin with the name of its dialect and a colon.
        dialect: dialect of a pattern that names no dialect.
        warn: whether to print a warning if a pattern names no dialect, and has a wildcard of another dialect.

    Raises:
        PatternError: a dialect does not allow a pattern.
    """
    for spec in specs:
        _warn_of_misspelled(spec)
    patterns = [compile_with_default(spec, None, dialect) for spec in specs]
    for spec, pattern in zip(specs, patterns, strict=True):
        found = foreign_wildcard(pattern) if warn and spec == pattern.text else None
        if found is not None:
            hint = f"write {found[1][0]}:{spec}, or nats:{spec} if you mean the text"
            warnings.warn(f"{foreign_wildcard_text(*found)}: {hint}", oz.SubjectWarning, stacklevel=2)
    return patterns


def _warn_of_misspelled(spec: str) -> None:
    if (advice := misspelled_dialect(spec)) is not None:
        warnings.warn(printable(advice), oz.SubjectWarning, stacklevel=3)
