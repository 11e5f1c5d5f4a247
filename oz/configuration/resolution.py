"""Values of a node's settings: the first value among arguments, environment variables, the file and defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from oz.configuration import files
from oz.configuration.settings import BY_NAME, DEFINITIONS, Definition, Setting, nearest_name
from oz.errors import ConfigurationError
from oz.options import Limits

SECURITY_VARIABLE = "OZ_SECURITY"
"""Environment variable that names a file with a table `[security]`."""


class Configuration:
    """Configuration of a node. It is immutable.

    Attributes:
        bus: name of the bus that the node joins.
        name: name of the node. None means the name of the program and its process id.
        connect: endpoints of nodes or name servers to which the node connects.
        bind: endpoints that the node binds for nodes of other hosts.
        directory: directory in which nodes of one host find each other. `private_directory` creates this directory.
        limits: limits of the table `[limits]` in the file. A limit that the file does not set has its default.
        sources: dict from the name of each setting to its source, such as "argument" or "default".
    """

    bus: str
    name: str | None
    connect: tuple[str, ...]
    bind: tuple[str, ...]
    directory: Path
    limits: Limits
    sources: Mapping[str, str]

    def __init__(self, settings: tuple[Setting, ...], limits: Limits) -> None:
        sources = MappingProxyType({setting.name: setting.source for setting in settings})
        vars(self).update(
            {setting.name: setting.value for setting in settings}, limits=limits, sources=sources
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"a configuration is immutable; create another: oz.configuration.resolve({name}=…)"
        )

    def __repr__(self) -> str:
        values = vars(self)
        given = [f"{name}={values[name]!r}" for name, source in self.sources.items() if source != "default"]
        if self.limits != Limits():
            given.append(f"limits={self.limits!r}")
        return f"Configuration({', '.join(given)})"


@dataclass(frozen=True, slots=True)
class ConfigurationSurvey:
    """Settings with their sources, and all faults.

    Attributes:
        settings: all settings. A wrong value is returned unchanged.
        limits: limits of the table `[limits]` in the file.
        security: one setting with the file that `OZ_SECURITY` names, or the settings of the table `[security]`.
        candidates: paths at which the configuration file may be.
        faults: all faults. The faults of the file come first.
        unused: dict from each misspelled environment variable to the most similar variable of oz.
    """

    settings: tuple[Setting, ...]
    limits: tuple[Setting, ...]
    security: tuple[Setting, ...]
    candidates: tuple[files.ConfigurationFile, ...]
    faults: tuple[ConfigurationError, ...]
    unused: Mapping[str, str]


def resolve(**given: Any) -> Configuration:
    """Return the configuration of a node. A wrong value is an error, even if another source overrides it.

    Args:
        given: arguments, named as the settings. None means that the argument is not given.

    Raises:
        ConfigurationError: the file cannot be read, or a value in the file, the environment or the arguments
            is wrong.
        TypeError: no setting has the name of an argument.
    """
    found = survey(**given)
    if found.faults:
        raise found.faults[0]
    return Configuration(found.settings, Limits(**{limit.name: limit.value for limit in found.limits}))


def resolve_limits() -> Limits:
    """Return the limits for a command or service without a node: the table `[limits]` of the file, and defaults.

    Raises:
        ConfigurationError: the file cannot be read, or a limit is wrong.
    """
    found = files.read_settings()
    for fault in found.faults:
        if fault.setting is None or fault in found.limit_faults:
            raise fault
    return Limits(**found.limits)


def security_source() -> tuple[Path, Mapping[str, Any] | None] | None:
    """Find the security settings of the environment or the configuration file.

    Returns:
        If `OZ_SECURITY` names a file: the path of that file, and None. Otherwise: the path of the configuration file,
        and its table `[security]`. Without security settings: None.

    Raises:
        ConfigurationError: the configuration file cannot be read.
    """
    named = os.environ.get(SECURITY_VARIABLE)
    if named:
        return Path(os.path.abspath(os.path.expanduser(named))), None
    found = files.read_settings()
    for fault in found.faults:
        if fault.setting in (None, files.SECURITY_TABLE):
            raise fault
    return None if found.path is None or found.security is None else (found.path, found.security)


def survey(**given: Any) -> ConfigurationSurvey:
    """Return the settings with their sources, and all faults. Faults are not raised.

    Args:
        given: arguments, named as the settings; see `resolve`.

    Raises:
        TypeError: no setting has the name of an argument.
    """
    for name in given:
        if name not in BY_NAME:
            raise TypeError(f"no setting has the name {name!r}; the settings are {', '.join(BY_NAME)}")
    found = files.read_settings()
    faults = list(found.faults)
    settings = tuple(
        _resolve_setting(definition, _candidates(definition, given, found), faults)
        for definition in DEFINITIONS
    )
    limits = tuple(Setting(name, value, f"file {found.path}") for name, value in found.limits.items())
    security = tuple(_security_settings(found))
    return ConfigurationSurvey(
        settings, limits, security, found.candidates, tuple(faults), _find_unused_variables()
    )


def _security_settings(found: files.FileSettings) -> Iterator[Setting]:
    named = os.environ.get(SECURITY_VARIABLE)
    if named:
        path = os.path.abspath(os.path.expanduser(named))
        yield Setting("file", path, f"environment variable {SECURITY_VARIABLE}")
    else:
        for name, value in (found.security or {}).items():
            yield Setting(name, value, f"file {found.path}")


_Candidate = tuple[Setting, Callable[[Any], Any]]


def _candidates(
    definition: Definition, given: Mapping[str, Any], found: files.FileSettings
) -> Iterator[_Candidate]:
    """Yield the value from each source and the function that checks it. The first value overrides the other values."""
    name, kind = definition.name, definition.kind
    if given.get(name) is not None:
        yield Setting(name, given[name], "argument"), kind.check
    text = os.environ.get(definition.variable)
    if text:
        yield Setting(name, text, f"environment variable {definition.variable}"), kind.from_text
    if name in found.table:
        yield Setting(name, found.table[name], f"file {found.path}"), kind.check


def _resolve_setting(
    definition: Definition, candidates: Iterator[_Candidate], faults: list[ConfigurationError]
) -> Setting:
    checked = [_check_candidate(candidate, check, faults) for candidate, check in candidates]
    if checked:
        return checked[0]
    default = Setting(definition.name, definition.default(), "default")
    return default if default.value is None else _check_candidate(default, definition.kind.check, faults)


def _check_candidate(
    candidate: Setting, check: Callable[[Any], Any], faults: list[ConfigurationError]
) -> Setting:
    try:
        return Setting(candidate.name, check(candidate.value), candidate.source)
    except ValueError as error:
        faults.append(ConfigurationError(candidate.name, candidate.value, candidate.source, str(error)))
        return candidate


def _find_unused_variables() -> dict[str, str]:
    """Return a dict from each misspelled variable, such as OZ_CONECT, to the most similar variable of oz."""
    known = {definition.variable for definition in DEFINITIONS} | {files.VARIABLE, SECURITY_VARIABLE}
    unknown = sorted(name for name in os.environ if name.startswith("OZ_") and name not in known)
    guesses = ((name, nearest_name(name, known)) for name in unknown)
    return {name: guess for name, guess in guesses if guess}
