"""Puts arguments, environment variables, the file and defaults together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from oz.configuration import files
from oz.configuration.settings import BY_NAME, DEFINITIONS, Definition, Setting, meant
from oz.errors import ConfigurationError
from oz.options import Limits

SECURITY_VARIABLE = "OZ_SECURITY"
"""The environment variable that names a file with a table `[security]`."""


class Configuration:
    """The configuration of a node; it does not change.

    Attributes:
        bus: the bus to join.
        name: what the node is called; None for the program's name and its process id.
        connect: endpoints of nodes or name servers to connect to.
        bind: endpoints at which nodes of other hosts connect to it.
        directory: where nodes of one host find each other; `private_directory` makes it.
        limits: those of the file's table `[limits]`, and for the others the default.
        sources: where each came from, by name, as `Setting.source`.
    """

    bus: str
    name: str | None
    connect: tuple[str, ...]
    bind: tuple[str, ...]
    directory: Path
    limits: Limits
    sources: Mapping[str, str]

    def __init__(self, settings: tuple[Setting, ...], limits: Limits) -> None:
        sources = MappingProxyType({one.name: one.source for one in settings})
        vars(self).update({one.name: one.value for one in settings}, limits=limits, sources=sources)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"a configuration does not change; oz.resolve_configuration({name}=…) is another"
        )

    def __repr__(self) -> str:
        values = vars(self)
        given = [f"{one}={values[one]!r}" for one, source in self.sources.items() if source != "default"]
        if self.limits != Limits():
            given.append(f"limits={self.limits!r}")
        return f"Configuration({', '.join(given)})"


@dataclass(frozen=True, slots=True)
class ConfigurationSurvey:
    """All that was found, also what is wrong.

    Attributes:
        settings: every setting; a wrong one has the value as it was written.
        limits: those that the file gives.
        security: where keys come from: the file that `OZ_SECURITY` names, or what `[security]` says.
        candidates: the files that were looked at.
        faults: what is wrong, the worst first.
        unused: environment variables that no setting has, each with the one that was probably meant.
    """

    settings: tuple[Setting, ...]
    limits: tuple[Setting, ...]
    security: tuple[Setting, ...]
    candidates: tuple[files.ConfigurationFile, ...]
    faults: tuple[ConfigurationError, ...]
    unused: Mapping[str, str]


def resolve(**given: Any) -> Configuration:
    """Put together what a node goes by, and check all of it, also what something else goes before.

    Args:
        given: arguments by the name of the setting; None is as good as not given.

    Raises:
        ConfigurationError: the file cannot be read, or something in it, in the environment or in the
            arguments is wrong.
        TypeError: no setting has the name of an argument.
    """
    found = survey(**given)
    if found.faults:
        raise found.faults[0]
    return Configuration(found.settings, Limits(**{one.name: one.value for one in found.limits}))


def resolve_limits() -> Limits:
    """Return the limits of a program or service that is no node: the file's `[limits]`, and defaults.

    Raises:
        ConfigurationError: the file cannot be read, or one of its limits is wrong.
    """
    found = files.look()
    for fault in found.faults:
        if fault.setting is None or fault in found.limit_faults:
            raise fault
    return Limits(**found.limits)


def security_source() -> tuple[Path, Mapping[str, Any] | None] | None:
    """Find out where the security of a command is said, if anywhere.

    Returns:
        The file that `OZ_SECURITY` names, and None; or else the configuration file and its `[security]`.

    Raises:
        ConfigurationError: the configuration file cannot be read.
    """
    named = os.environ.get(SECURITY_VARIABLE)
    if named:
        return Path(os.path.abspath(os.path.expanduser(named))), None
    found = files.look()
    for fault in found.faults:
        if fault.setting in (None, files.SECURITY_TABLE):
            raise fault
    return None if found.path is None or found.security is None else (found.path, found.security)


def survey(**given: Any) -> ConfigurationSurvey:
    """Find out all that `resolve` would, and what is wrong, without raising it.

    Args:
        given: as for `resolve`.

    Raises:
        TypeError: no setting has the name of an argument.
    """
    for name in given:
        if name not in BY_NAME:
            raise TypeError(f"no setting is called {name!r}; there are {', '.join(BY_NAME)}")
    found = files.look()
    faults = list(found.faults)
    settings = tuple(_settle(one, _offers(one, given, found), faults) for one in DEFINITIONS)
    limits = tuple(Setting(name, value, f"file {found.path}") for name, value in found.limits.items())
    security = tuple(_security(found))
    return ConfigurationSurvey(settings, limits, security, found.candidates, tuple(faults), _unused())


def _security(found: files.FileSettings) -> Iterator[Setting]:
    """Yield what says which keys there are, the one that counts first."""
    named = os.environ.get(SECURITY_VARIABLE)
    if named:
        path = os.path.abspath(os.path.expanduser(named))
        yield Setting("file", path, f"environment variable {SECURITY_VARIABLE}")
    else:
        for name, value in (found.security or {}).items():
            yield Setting(name, value, f"file {found.path}")


_Offer = tuple[Setting, Callable[[Any], Any]]


def _offers(definition: Definition, given: Mapping[str, Any], found: files.FileSettings) -> Iterator[_Offer]:
    """Yield the values that a setting is offered, the one that counts first, with what checks each."""
    name, kind = definition.name, definition.kind
    if given.get(name) is not None:
        yield Setting(name, given[name], "argument"), kind.check
    text = os.environ.get(definition.variable)
    if text:
        yield Setting(name, text, f"environment variable {definition.variable}"), kind.from_text
    if name in found.table:
        yield Setting(name, found.table[name], f"file {found.path}"), kind.check


def _settle(definition: Definition, offers: Iterator[_Offer], faults: list[ConfigurationError]) -> Setting:
    """Check all that a setting is offered, and give the first."""
    checked = [_checked(offer, check, faults) for offer, check in offers]
    if checked:
        return checked[0]
    default = Setting(definition.name, definition.default(), "default")
    return default if default.value is None else _checked(default, definition.kind.check, faults)


def _checked(offer: Setting, check: Callable[[Any], Any], faults: list[ConfigurationError]) -> Setting:
    try:
        return Setting(offer.name, check(offer.value), offer.source)
    except ValueError as error:
        faults.append(ConfigurationError(offer.name, offer.value, offer.source, str(error)))
        return offer


def _unused() -> dict[str, str]:
    """Find variables that look like one that a setting has, as OZ_NAMESERVERS does."""
    known = {one.variable for one in DEFINITIONS} | {files.VARIABLE, SECURITY_VARIABLE}
    strangers = sorted(name for name in os.environ if name.startswith("OZ_") and name not in known)
    guesses = ((name, meant(name, known)) for name in strangers)
    return {name: guess for name, guess in guesses if guess}
