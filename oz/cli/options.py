"""Options that several commands have, and their checks."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import click

import oz
from oz.escaping import printable
from oz.options import OVERFLOWS, POLICIES
from oz.subjects.advice import foreign_wildcard, foreign_wildcard_text, misspelled_dialect
from oz.subjects.pattern import compile_with_default
from oz.subscriber.checks import MAX_GROUP

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5750"
"""Endpoint of `oz pub` and `oz sub` without endpoint options; only this machine can connect."""

FILTERINGS = ("auto", "publisher", "prefix")
FILTERING_HELP = (
    "Side that filters: the oz publisher, ZeroMQ by prefix, or auto: the publisher if it is one of oz.  "
    "[default: auto]"
)

DELIVERY = ("group", "policy", "overflow", "last_value")
"""Names of the options of `delivery_options`."""

MAX_SECONDS = 1e9
"""Longest time of an option, 31 years: longer times overflow clocks."""

MAX_TIMES = 1_000_000_000_000
"""Maximum of an option that is a number of things."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Number(click.FloatRange):
    """Number in a range. nan is refused, because comparisons with it are always false."""

    def __init__(self, minimum: float = 0.0, maximum: float = MAX_SECONDS, *, above: bool = False) -> None:
        """Create a type for numbers from `minimum` to `maximum`, without `minimum` itself if `above`."""
        super().__init__(minimum, maximum, min_open=above)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail."""
        if math.isnan(click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        """Leave the largest possible bound out of the text of `--help`."""
        text = super()._describe_range()
        return text if self.max != MAX_SECONDS else f"x{'>' if self.min_open else '>='}{self.min:g}"


_EMPTY_PATH = "the path is empty; is a variable of the shell unset? Write . for the current directory."


class PathName(click.Path):
    """Path. An empty path is refused, because it usually comes from an unset variable of the shell."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail."""
        if not os.fspath(value):
            self.fail(_EMPTY_PATH, param, ctx)
        return super().convert(value, param, ctx)


TEXT_OF_PLACE = PathName(readable=False)
"""Type of a path or a URI; neither may be empty."""


class Whole(click.IntRange):
    """Whole number in a range."""

    def __init__(self, minimum: int = 0, maximum: int = MAX_TIMES) -> None:
        """Create a type for numbers from `minimum` to `maximum`."""
        super().__init__(minimum, maximum)

    def _describe_range(self) -> str:
        return super()._describe_range() if self.max != MAX_TIMES else f"x>={self.min}"


def dialect_option(of_what: str) -> Callable[[_F], _F]:
    """Add `--dialect`. `of_what` completes its help: "The dialect of …"."""
    return click.option(
        "--dialect",
        type=click.Choice(oz.DIALECTS),
        default=oz.DIALECTS[0],
        metavar="NAME",
        help=f"The dialect of {of_what}: {', '.join(oz.DIALECTS)}.  [default: {oz.DIALECTS[0]}]",
    )


def endpoint_options(default: str) -> Callable[[_F], _F]:
    """Add `--bind` and `--connect`; `default` is the option with a default endpoint."""

    def offer(command: _F) -> _F:
        for name in ("--connect", "--bind"):
            note = f"  [default: {DEFAULT_ENDPOINT}]" if name == default else ""
            text = f"{name[2:].capitalize()} to this endpoint; may be repeated.{note}"
            command = endpoints_option(name, text)(command)
        return command

    return offer


def security_option(command: _F) -> _F:
    """Add `--security`; the command gets a `Security`, or None."""
    return click.option(
        "--security",
        metavar="FILE",
        callback=_read_security,
        help="A TOML file with a table [security]: the own key, and the trusted keys.  "
        "[default: OZ_SECURITY, or the configuration file]",
    )(command)


def _read_security(_ctx: click.Context, _option: click.Parameter, path: str | None) -> oz.Security | None:
    from oz.transport.security import resolve_security  # Most commands need no sockets.

    return resolve_security() if path is None else oz.Security.from_file(path)


_SHORT = {"--connect": ("-c",), "--bind": ("-b",)}


def endpoints_option(name: str, text: str) -> Callable[[_F], _F]:
    """Add an option with endpoints, which may be repeated."""
    names = (*_SHORT.get(name, ()), name)
    return click.option(*names, multiple=True, metavar="ENDPOINT", callback=_checked, help=text)


def filtering_option(command: _F) -> _F:
    """Add `--filtering`."""
    return click.option("--filtering", type=click.Choice(FILTERINGS), default="auto", help=FILTERING_HELP)(
        command
    )


def delivery_options(command: _F) -> _F:
    """Add the options of a subscription; `check_delivery` reads them."""
    options = (
        click.option(
            "-g",
            "--group",
            metavar="NAME",
            callback=checked_group,
            help="Each message goes to one of the subscribers of this group.",
        ),
        click.option(
            "--policy",
            type=click.Choice(POLICIES),
            help="Selection of the member of the group: in turn, the same for each subject or key, or the one that "
            "joined first.  [default: round_robin]",
        ),
        click.option(
            "--overflow",
            type=click.Choice(OVERFLOWS),
            help="For a subscriber that is too slow: keep only the newest message of each subject, or drop the "
            "oldest or the newest messages.  [default: keep all]",
        ),
        click.option(
            "--last-value",
            is_flag=True,
            help="Begin with the newest message of each subject that the publisher keeps.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def checked_group(_ctx: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """Check the name of a group."""
    if name is not None and not (
        isinstance(text_or_bytes(name), str) and 0 < len(name.encode()) <= MAX_GROUP
    ):
        raise click.BadParameter(f"{printable(name)!r}: give a name of 1 to {MAX_GROUP} bytes of UTF-8")
    return name


def check_delivery(given: dict[str, Any], filtering: str, *, with_headers: bool = False) -> dict[str, Any]:
    """Return those options of `delivery_options` that were given.

    Args:
        given: the options by name.
        filtering: of the subscriber.
        with_headers: whether headers are shown.

    Raises:
        click.UsageError: an option needs another one, or excludes it.
    """
    options = {name: value for name, value in given.items() if value}
    if "policy" in options and "group" not in options:
        raise click.UsageError("--policy needs --group NAME")
    if filtering == "prefix" and (options or with_headers):
        named = ", ".join(f"--{name.replace('_', '-')}" for name in options) or "--headers"
        raise click.UsageError(f"{named} needs a link: leave out --filtering prefix")
    return options


def one_endpoint_option(name: str, text: str) -> Callable[[_F], _F]:
    """Add an option with one endpoint that other processes can reach."""
    return click.option(*_SHORT.get(name, ()), name, metavar="ENDPOINT", callback=_checked_one, help=text)


def _checked_one(ctx: click.Context, option: click.Parameter, given: str | None) -> str | None:
    if given is None:
        return None
    if given.partition("://")[0] not in ("tcp", "ipc"):
        raise click.BadParameter(f"{given!r}: give a tcp:// or an ipc:// endpoint")
    return _checked(ctx, option, (given,))[0]


def _checked(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[str]:
    from oz.transport import endpoints

    for endpoint in given:
        try:
            endpoints.check(endpoint, own_context=True)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return list(given)


@contextmanager
def socket_refused() -> Iterator[None]:
    """Report a ValueError of a constructor as wrong usage, in a `with` block."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, oz.OzError):
            raise
        raise click.UsageError(str(error)) from None


class HasEndpoint(Protocol):
    """Socket or service with an endpoint."""

    @property
    def endpoint(self) -> str | None:
        """The address last bound, or else connected to."""


def ready_line(
    socket: HasEndpoint, bind: Sequence[str], connect: Sequence[str], *, have_answered: bool = False
) -> str:
    """Return the line that reports a ready socket and its endpoints.

    Args:
        socket: that is ready; its endpoint has the real port in place of `*`.
        bind: bound endpoints.
        connect: connected endpoints.
        have_answered: whether the peers at these endpoints have answered.
    """
    bound = [f"bound to {endpoint}" for endpoint in (*bind[:-1], socket.endpoint)] if bind else []
    connects = "connected" if have_answered else "connecting"
    return f"ready, {', '.join(bound + [f'{connects} to {endpoint}' for endpoint in connect])}"


def parse_all(specs: Sequence[str], dialect: str, *, warn: bool = True) -> list[oz.Pattern]:
    """Compile patterns of the command line, which may contain any bytes.

    Args:
        specs: the patterns. Each may begin with the name of its dialect.
        dialect: of patterns without a dialect of their own.
        warn: whether to warn of wildcards of another dialect, in patterns without a dialect.

    Raises:
        PatternError: a dialect does not allow a pattern.
    """
    for spec in specs:
        _warn_of_misspelled(spec)
    patterns = [compile_with_default(spec, None, dialect) for spec in specs]
    for spec, pattern in zip(specs, patterns, strict=True):
        found = foreign_wildcard(pattern) if warn and spec == pattern.text else None
        if found is not None:
            hint = f"write {found[1][0]}:{spec}, or nats:{spec} if you mean the character"
            warnings.warn(f"{foreign_wildcard_text(*found)}: {hint}", oz.SubjectWarning, stacklevel=2)
    return patterns


def _warn_of_misspelled(spec: str) -> None:
    """Warn of a misspelled dialect before the first colon."""
    if (advice := misspelled_dialect(spec)) is not None:
        warnings.warn(printable(advice), oz.SubjectWarning, stacklevel=3)


def text_or_bytes(argument: str) -> str | bytes:
    """Return an argument as text, or as bytes if it is not UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return argument.encode(errors="surrogateescape")
    return argument
